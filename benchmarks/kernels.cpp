#include "kernels/kernels.hpp"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/half.hpp"
#include "peaks/peaks.hpp"

// One thread, every kernel set this processor supports. Rates are of processor time. "peak%" compares with a
// loop of the set's multiply-accumulate instructions on registers, "memory%" with a streaming read of a
// buffer larger than the caches, both measured by this process.

namespace hexlm::bench {
namespace {

template <class T>
class Memory {
 public:
  explicit Memory(int64_t count)
      : buffer_(*AlignedBuffer::allocate(static_cast<size_t>(count) * sizeof(T))) {}
  T* data() { return buffer_.as<T>(); }
  size_t size() const { return buffer_.size() / sizeof(T); }

 private:
  AlignedBuffer buffer_;
};

void fill_bytes(std::byte* to, size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<std::byte>(engine());
}

void fill_floats(float* to, int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<float>(static_cast<int>(engine() % 2001) - 1000) * 1e-3F;
}

void fill_halves(uint16_t* to, int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  for (int64_t i = 0; i < count; ++i) to[i] = float_to_half(static_cast<float>(engine() % 1000 + 1) * 1e-5F);
}

const Peaks& peaks_of(const KernelSet& set) {
  static std::map<std::string, Peaks> known;
  const auto [place, is_new] = known.try_emplace(set.name);
  if (is_new) place->second = measure_peaks(set.name);
  return place->second;
}

/// Bytes per second of processor time that one thread reads in order from 256 MB, the best of eight passes.
double memory_bandwidth() {
  static const double bandwidth = [] {
    constexpr int64_t words = int64_t{1} << 25;
    Memory<uint64_t> memory(words);
    std::memset(memory.data(), 1, static_cast<size_t>(words) * 8);
    double best = 0;
    for (int pass = 0; pass < 8; ++pass) {
      const std::clock_t begin = std::clock();
      uint64_t parts[8] = {};
      for (int64_t i = 0; i < words; i += 8) {
        __builtin_prefetch(memory.data() + i + 512);
        for (int64_t j = 0; j < 8; ++j) parts[j] ^= memory.data()[i + j];
      }
      benchmark::DoNotOptimize(parts);
      const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      best = std::max(best, static_cast<double>(words) * 8 / seconds);
    }
    return best;
  }();
  return bandwidth;
}

/// `macs` and `bytes` of one call; 0 leaves a counter out.
void report(benchmark::State& state, double macs, double peak, double bytes) {
  const auto calls = static_cast<double>(state.iterations());
  if (macs > 0) {
    state.counters["GMAC/s"] = benchmark::Counter(macs * calls * 1e-9, benchmark::Counter::kIsRate);
    if (peak > 0)
      state.counters["peak%"] = benchmark::Counter(100 * macs * calls / peak, benchmark::Counter::kIsRate);
  }
  if (bytes > 0) {
    state.counters["GB/s"] = benchmark::Counter(bytes * calls * 1e-9, benchmark::Counter::kIsRate);
    state.counters["memory%"] =
        benchmark::Counter(100 * bytes * calls / memory_bandwidth(), benchmark::Counter::kIsRate);
  }
}

struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t tokens;
};

Codec integer_codec(int bits) {
  return {.kind = Codec::Kind::integer, .bits = bits, .group = 64, .symmetric = true};
}

/// A stored matrix of random bytes; any bytes are valid codes, and random halves serve as scales.
struct Stored {
  MatrixView view;
  Memory<std::byte> data;
  Memory<uint16_t> scales;

  Stored(const Codec& codec, int64_t rows, int64_t columns)
      : data(rows * codec.row_bytes(columns)), scales(std::max<int64_t>(1, rows * codec.groups(columns))) {
    if (codec.is_float()) {
      std::memset(data.data(), 0, data.size());
    } else {
      fill_bytes(data.data(), data.size(), 1);
    }
    fill_halves(scales.data(), static_cast<int64_t>(scales.size()), 2);
    view = {.codec = codec,
            .rows = rows,
            .columns = columns,
            .data = data.data(),
            .scales = reinterpret_cast<const std::byte*>(scales.data()),
            .offsets = nullptr};
  }
  double bytes() const {
    return static_cast<double>(view.rows *
                               (view.codec.row_bytes(view.columns) + view.codec.groups(view.columns) * 2));
  }
};

struct Packed {
  PackedMatrix matrix;
  Memory<std::byte> codes;
  Memory<uint16_t> scales;

  explicit Packed(const MatrixView& view)
      : matrix(describe(view)),
        codes(static_cast<int64_t>(packed_code_bytes(matrix))),
        scales(static_cast<int64_t>(packed_scale_bytes(matrix) / 2)) {
    matrix.codes = codes.data();
    matrix.scales = scales.data();
  }
  static PackedMatrix describe(const MatrixView& view) {
    PackedMatrix matrix;
    describe_packed(view, matrix);
    return matrix;
  }
  int64_t tiles() const { return (matrix.rows + packed_tile_rows - 1) / packed_tile_rows; }
};

struct Activations {
  Memory<int8_t> values;
  Memory<float> scales;
  Memory<int32_t> sums;
  QuantizedRows rows;

  Activations(int64_t tokens, const PackedMatrix& matrix)
      : values(tokens * matrix.padded_columns),
        scales(tokens * matrix.padded_columns / matrix.block),
        sums(tokens * matrix.padded_columns / matrix.block),
        rows{.rows = tokens,
             .padded_columns = matrix.padded_columns,
             .block = matrix.block,
             .values = values.data(),
             .scales = scales.data(),
             .sums = sums.data()} {}
};

void int8_linear(benchmark::State& state, const KernelSet& set, int bits, Shape shape) {
  Stored stored(integer_codec(bits), shape.rows, shape.columns);
  Packed packed(stored.view);
  set.pack(stored.view, packed.matrix, 0, packed.tiles());
  Activations x(shape.tokens, packed.matrix);
  Memory<float> input(shape.tokens * shape.columns);
  fill_floats(input.data(), shape.tokens * shape.columns, 3);
  set.quantize_rows(input.data(), shape.columns, shape.columns, x.rows, 0, shape.tokens);
  Memory<float> y(shape.tokens * shape.rows);
  const Int8LinearArguments arguments{.weight = &packed.matrix,
                                      .x = x.rows,
                                      .bias = nullptr,
                                      .y = y.data(),
                                      .y_stride = shape.rows,
                                      .tile_begin = 0,
                                      .tile_end = packed.tiles()};
  for (auto _ : state) set.int8_linear(arguments);
  report(state, static_cast<double>(shape.rows * shape.columns * shape.tokens), peaks_of(set).int8_macs,
         shape.tokens == 1 ? stored.bytes() : 0);
}

void float_linear(benchmark::State& state, const KernelSet& set, const Codec& codec, Shape shape) {
  Stored stored(codec, shape.rows, shape.columns);
  Memory<float> x(shape.tokens * shape.columns);
  fill_floats(x.data(), shape.tokens * shape.columns, 4);
  Memory<float> y(shape.tokens * shape.rows);
  Memory<float> scratch(float_linear_scratch(shape.columns));
  const FloatLinearArguments arguments{.x = x.data(),
                                       .x_stride = shape.columns,
                                       .tokens = shape.tokens,
                                       .weight = stored.view,
                                       .bias = nullptr,
                                       .y = y.data(),
                                       .y_stride = shape.rows,
                                       .row_begin = 0,
                                       .row_end = shape.rows,
                                       .scratch = scratch.data()};
  for (auto _ : state) set.float_linear(arguments);
  report(state, static_cast<double>(shape.rows * shape.columns * shape.tokens), peaks_of(set).float_macs,
         shape.tokens == 1 ? stored.bytes() : 0);
}

void pack(benchmark::State& state, const KernelSet& set, int bits) {
  Stored stored(integer_codec(bits), 16384, 4096);
  Packed packed(stored.view);
  for (auto _ : state) set.pack(stored.view, packed.matrix, 0, packed.tiles());
  report(state, 0, 0, stored.bytes());
}

void quantize_rows(benchmark::State& state, const KernelSet& set) {
  Stored stored(integer_codec(4), 16, 4864);
  Packed packed(stored.view);
  Activations x(84, packed.matrix);
  Memory<float> input(84 * int64_t{4864});
  fill_floats(input.data(), 84 * 4864, 5);
  for (auto _ : state) set.quantize_rows(input.data(), 4864, 4864, x.rows, 0, 84);
  report(state, 0, 0, 84.0 * 4864 * 4);
}

struct AttentionShape {
  int64_t heads;
  int64_t head_dim;
  int64_t past;
  int64_t tokens;
};

void attention(benchmark::State& state, const KernelSet& set, AttentionShape shape) {
  const int64_t entries = shape.past + shape.tokens;
  const int64_t stride = shape.heads * shape.head_dim;
  Memory<float> query(shape.tokens * stride);
  fill_floats(query.data(), shape.tokens * stride, 6);
  Memory<uint16_t> keys(entries * shape.head_dim);
  Memory<uint16_t> values(entries * shape.head_dim);
  fill_halves(keys.data(), entries * shape.head_dim, 7);
  fill_halves(values.data(), entries * shape.head_dim, 8);
  Memory<float> output(shape.tokens * stride);
  Memory<float> scratch(attention_scratch(shape.head_dim));
  const AttentionArguments arguments{.query = query.data(),
                                     .query_stride = stride,
                                     .heads = shape.heads,
                                     .head_dim = shape.head_dim,
                                     .cache = CacheType::f16,
                                     .keys = keys.data(),
                                     .values = values.data(),
                                     .past = shape.past,
                                     .token_begin = 0,
                                     .token_end = shape.tokens,
                                     .scale = 0.1F,
                                     .output = output.data(),
                                     .output_stride = stride,
                                     .scratch = scratch.data()};
  for (auto _ : state) set.attention(arguments);
  const auto pairs = static_cast<double>(shape.tokens * shape.past + shape.tokens * (shape.tokens + 1) / 2);
  report(state, pairs * static_cast<double>(2 * stride), peaks_of(set).float_macs,
         shape.tokens == 1 ? static_cast<double>(entries * shape.head_dim * 4) : 0);
}

void delta_net(benchmark::State& state, const KernelSet& set, int64_t tokens) {
  constexpr int64_t dim = 128;
  Memory<float> inputs(tokens * 3 * dim);
  fill_floats(inputs.data(), tokens * 3 * dim, 9);
  Memory<float> gates(tokens * 2);
  for (int64_t i = 0; i < tokens * 2; ++i) gates.data()[i] = i % 2 == 0 ? -0.1F : 0.5F;
  Memory<float> memory(dim * dim);
  Memory<float> output(tokens * dim);
  Memory<float> scratch(delta_net_scratch(dim));
  const DeltaNetArguments arguments{.query = inputs.data(),
                                    .key = inputs.data() + dim,
                                    .value = inputs.data() + 2 * dim,
                                    .stride = 3 * dim,
                                    .log_decay = gates.data(),
                                    .beta = gates.data() + 1,
                                    .gate_stride = 2,
                                    .tokens = tokens,
                                    .key_dim = dim,
                                    .value_dim = dim,
                                    .epsilon = 1e-6F,
                                    .state = memory.data(),
                                    .output = output.data(),
                                    .output_stride = dim,
                                    .scratch = scratch.data()};
  for (auto _ : state) set.delta_net(arguments);
  // Two reads of the state, one write with decay.
  report(state, static_cast<double>(4 * dim * dim * tokens), peaks_of(set).float_macs, 0);
}

void rms_norm(benchmark::State& state, const KernelSet& set) {
  Memory<float> x(84 * int64_t{896});
  fill_floats(x.data(), 84 * 896, 10);
  Memory<float> y(84 * int64_t{896});
  for (auto _ : state) set.rms_norm(x.data(), 896, x.data(), y.data(), 896, 84, 896, 1e-6F, 0.0F);
  report(state, 0, 0, 84.0 * 896 * 8);
}

void silu_multiply(benchmark::State& state, const KernelSet& set) {
  Memory<float> x(2 * int64_t{84} * 4864);
  fill_floats(x.data(), 2 * 84 * 4864, 11);
  Memory<float> y(84 * int64_t{4864});
  for (auto _ : state) set.silu_multiply(x.data(), x.data() + 84 * 4864, y.data(), 84 * 4864);
  report(state, 0, 0, 84.0 * 4864 * 12);
}

template <class Function, class... Arguments>
void add_case(const std::string& name, const KernelSet& set, Function function, Arguments... arguments) {
  benchmark::RegisterBenchmark(fmt::format("{}/{}", set.name, name).c_str(), [=,
                                                                              &set](benchmark::State& state) {
    function(state, set, arguments...);
  })->Unit(benchmark::kMicrosecond);
}

std::string to_text(const Shape& shape) {
  return fmt::format("{}x{}/tokens:{}", shape.rows, shape.columns, shape.tokens);
}

void add_cases(const KernelSet& set) {
  for (const int bits : {4, 8}) {
    const std::string codec = fmt::format("w{}g64/", bits);
    // The feed-forward matrices and the head of Qwen2.5-0.5B; the last two are larger than the caches.
    for (const Shape shape :
         {Shape{4864, 896, 512}, Shape{896, 4864, 512}, Shape{4864, 896, 84}, Shape{896, 4864, 84},
          Shape{896, 896, 512}, Shape{9728, 896, 4}, Shape{151936, 896, 1}, Shape{32768, 4864, 1}}) {
      add_case("int8_linear/" + codec + to_text(shape), set, int8_linear, bits, shape);
    }
    add_case(fmt::format("pack/w{}", bits), set, pack, bits);
  }
  add_case("pack/w3", set, pack, 3);
  add_case("quantize_rows", set, quantize_rows);
  const Codec f16{.kind = Codec::Kind::f16, .bits = 16, .group = 0, .symmetric = true};
  const Codec f32{.kind = Codec::Kind::f32, .bits = 32, .group = 0, .symmetric = true};
  for (const Shape shape :
       {Shape{4864, 896, 64}, Shape{896, 4864, 64}, Shape{4864, 896, 512}, Shape{65536, 896, 1}}) {
    add_case("float_linear/w4g64/" + to_text(shape), set, float_linear, integer_codec(4), shape);
    add_case("float_linear/f16/" + to_text(shape), set, float_linear, f16, shape);
    add_case("float_linear/f32/" + to_text(shape), set, float_linear, f32, shape);
  }
  add_case("attention/heads:7/dim:64/tokens:512", set, attention, AttentionShape{7, 64, 0, 512});
  add_case("attention/heads:2/dim:128/tokens:512", set, attention, AttentionShape{2, 128, 0, 512});
  add_case("attention/heads:4/dim:256/tokens:512", set, attention, AttentionShape{4, 256, 0, 512});
  add_case("attention/heads:7/dim:64/past:4096/tokens:1", set, attention, AttentionShape{7, 64, 4096, 1});
  add_case("attention/heads:2/dim:128/past:65536/tokens:1", set, attention, AttentionShape{2, 128, 65536, 1});
  add_case("attention/heads:2/dim:128/past:4096/tokens:1", set, attention, AttentionShape{2, 128, 4096, 1});
  add_case("delta_net/tokens:1", set, delta_net, 1);
  add_case("delta_net/tokens:64", set, delta_net, 64);
  add_case("rms_norm/84x896", set, rms_norm);
  add_case("silu_multiply/84x4864", set, silu_multiply);
}

}  // namespace
}  // namespace hexlm::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const hexlm::KernelSet* set : hexlm::kernel_sets()) {
    if (!set->supported(hexlm::cpu_features())) continue;
    const hexlm::bench::Peaks& peaks = hexlm::bench::peaks_of(*set);
    benchmark::AddCustomContext(fmt::format("{} int8 peak, GMAC/s", set->name),
                                std::to_string(peaks.int8_macs * 1e-9));
    benchmark::AddCustomContext(fmt::format("{} float peak, GMAC/s", set->name),
                                std::to_string(peaks.float_macs * 1e-9));
    hexlm::bench::add_cases(*set);
  }
  benchmark::AddCustomContext("memory, GB/s", std::to_string(hexlm::bench::memory_bandwidth() * 1e-9));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
