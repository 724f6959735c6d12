#include "evaluation/stored_weights.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <mutex>
#include <optional>

#include "base/half.hpp"
#include "base/progress.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "quantization/encode.hpp"

namespace hexlm {
namespace {

constexpr int64_t block_elements = int64_t{1} << 18;

/// Where two encodings of a tensor differ first, and how: "scale [3, 1] is 0.25, …".
struct Mismatch {
  std::string what;
  std::string stored;
  std::string expected;
};

std::string float_text(const Codec& codec, const std::byte* bytes) {
  float value = 0;
  uint16_t bits = 0;
  if (codec.kind == Codec::Kind::f32) {
    std::memcpy(&value, bytes, sizeof(value));
  } else {
    std::memcpy(&bits, bytes, sizeof(bits));
    value = codec.kind == Codec::Kind::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
  }
  return fmt::format("{}", value);
}

std::string half_text(std::span<const std::byte> bytes, size_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + 2 * index, sizeof(bits));
  return fmt::format("{}", half_to_float(bits));
}

std::optional<size_t> first_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0)) return {};
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// One tensor of the package beside its source. Float codecs are flat: one long row.
class TensorCheck {
 public:
  TensorCheck(const WeightView& source, const WeightView& stored) : source_(source), stored_(stored) {
    rows_ = stored.rows();
    columns_ = stored.columns();
    if (stored.codec.is_float()) {
      columns_ = rows_ * columns_;
      rows_ = 1;
    }
  }
  int64_t blocks() const { return (units() + block_units() - 1) / block_units(); }
  std::optional<Mismatch> check(int64_t block) const;

 private:
  bool flat() const { return stored_.codec.is_float(); }
  /// Rows, or for float codecs elements.
  int64_t units() const { return flat() ? columns_ : rows_; }
  int64_t block_units() const {
    return flat() ? block_elements : std::max<int64_t>(1, block_elements / columns_);
  }
  std::optional<Mismatch> compare_floats(const EncodedRows& encoded, int64_t begin) const;
  std::optional<Mismatch> compare_codes(const EncodedRows& encoded, int64_t begin) const;
  std::optional<Mismatch> compare_halves(const char* what, const TensorView& stored,
                                         const std::vector<uint16_t>& expected, int64_t begin) const;

  const WeightView& source_;
  const WeightView& stored_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
};

std::optional<Mismatch> TensorCheck::check(int64_t block) const {
  const int64_t begin = block * block_units();
  const int64_t count = std::min(block_units(), units() - begin);
  const int64_t unit_elements = flat() ? 1 : columns_;
  const std::byte* from =
      source_.data.bytes.data() + begin * unit_elements * bit_width(source_.data.dtype) / 8;
  EncodedRows encoded;
  const auto fault = encode_rows(from, source_.data.dtype, flat() ? 1 : count, flat() ? count : columns_,
                                 stored_.codec, Method::rtn, encoded, available_row_kernels().front());
  if (fault) return Mismatch{"a value", "there", fmt::format("{}, which can't be stored", fault->value)};
  if (flat()) return compare_floats(encoded, begin);
  if (auto mismatch = compare_halves("scale", stored_.scales, encoded.scales, begin)) return mismatch;
  if (auto mismatch = compare_halves("offset", stored_.offsets, encoded.offsets, begin)) return mismatch;
  return compare_codes(encoded, begin);
}

std::optional<Mismatch> TensorCheck::compare_floats(const EncodedRows& encoded, int64_t begin) const {
  const size_t width = static_cast<size_t>(bit_width(stored_.data.dtype)) / 8;
  const auto stored = stored_.data.bytes.subspan(static_cast<size_t>(begin) * width, encoded.data.size());
  const auto at = first_difference(stored, encoded.data);
  if (!at) return {};
  const size_t element = *at / width;
  return Mismatch{fmt::format("element {}", static_cast<size_t>(begin) + element),
                  float_text(stored_.codec, stored.data() + element * width),
                  float_text(stored_.codec, encoded.data.data() + element * width)};
}

std::optional<Mismatch> TensorCheck::compare_codes(const EncodedRows& encoded, int64_t begin) const {
  const auto row_bytes = static_cast<size_t>(stored_.codec.row_bytes(columns_));
  const auto stored = stored_.data.bytes.subspan(static_cast<size_t>(begin) * row_bytes, encoded.data.size());
  const auto at = first_difference(stored, encoded.data);
  if (!at) return {};
  return Mismatch{fmt::format("byte {} of the codes of row {}", *at % row_bytes,
                              static_cast<size_t>(begin) + *at / row_bytes),
                  fmt::format("{}", std::to_integer<int>(stored[*at])),
                  fmt::format("{}", std::to_integer<int>(encoded.data[*at]))};
}

std::optional<Mismatch> TensorCheck::compare_halves(const char* what, const TensorView& stored,
                                                    const std::vector<uint16_t>& expected,
                                                    int64_t begin) const {
  const auto groups = static_cast<size_t>(stored_.codec.groups(columns_));
  const auto bytes = std::as_bytes(std::span(expected));
  const auto view = stored.bytes.subspan(
      stored.bytes.empty() ? 0 : static_cast<size_t>(begin) * groups * sizeof(uint16_t), bytes.size());
  const auto at = first_difference(view, bytes);
  if (!at) return {};
  const size_t index = *at / sizeof(uint16_t);
  return Mismatch{
      fmt::format("{} [{}, {}]", what, static_cast<size_t>(begin) + index / groups, index % groups),
      half_text(view, index), half_text(bytes, index)};
}

/// The first block that differs, however the threads came to it.
std::optional<Mismatch> find_mismatch(const WeightView& source, const WeightView& stored, ThreadPool& pool) {
  // Rounding gives fp16 scales.
  if (stored.codec.wide_scales) return Mismatch{"the codec", to_string(stored.codec), "fp16 scales"};
  const TensorCheck check(source, stored);
  std::mutex mutex;
  std::optional<std::pair<int64_t, Mismatch>> first;
  pool.run(check.blocks(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t block = begin; block < end; ++block) {
      std::optional<Mismatch> mismatch = check.check(block);
      if (!mismatch) continue;
      const std::lock_guard lock(mutex);
      if (!first || block < first->first) first.emplace(block, *std::move(mismatch));
    }
  });
  if (!first) return {};
  return std::move(first->second);
}

/// Of a weight that was quantized already, and is kept as it is.
std::optional<Mismatch> compare_kept(const WeightView& source, const WeightView& stored) {
  if (stored.codec != source.codec)
    return Mismatch{"the codec", to_string(stored.codec), to_string(source.codec)};
  const auto compare = [](const char* part, const TensorView& kept,
                          const TensorView& expected) -> std::optional<Mismatch> {
    const auto at = first_difference(kept.bytes, expected.bytes);
    if (!at) return {};
    const auto text = [&](const TensorView& view) {
      return *at < view.bytes.size() ? fmt::format("{}", std::to_integer<int>(view.bytes[*at])) : "missing";
    };
    return Mismatch{fmt::format("byte {} of the {}", *at, part), text(kept), text(expected)};
  };
  if (auto mismatch = compare("scales", stored.scales, source.scales)) return mismatch;
  if (auto mismatch = compare("offsets", stored.offsets, source.offsets)) return mismatch;
  return compare("codes", stored.data, source.data);
}

}  // namespace

Status check_stored_weights(const Package& package, const SourceWeights& checkpoint, int threads) {
  ThreadPool pool(threads);
  for (const PackageTensor& tensor : package.manifest().tensors) {
    if (interrupted()) return fail(ErrorCode::interrupted, "interrupted");
    HEXLM_ASSIGN(const WeightView stored, package.find(tensor.name));
    HEXLM_ASSIGN(const WeightView source, checkpoint.find(tensor.name));
    if (stored.shape != source.shape) {
      return fail(
          ErrorCode::verification,
          fmt::format("{}/{}: tensor '{}' has shape {}, the checkpoint's {}", package.folder(), tensor.file,
                      tensor.name, format_shape(stored.shape), format_shape(source.shape)),
          "the package is of another checkpoint");
    }
    const std::optional<Mismatch> mismatch =
        source.codec.is_float() ? find_mismatch(source, stored, pool) : compare_kept(source, stored);
    package.release(stored);
    checkpoint.release(source);
    if (mismatch) {
      return fail(
          ErrorCode::verification,
          fmt::format("{}/{}: tensor '{}': {} is {}, the checkpoint's weights give {}", package.folder(),
                      tensor.file, tensor.name, mismatch->what, mismatch->stored, mismatch->expected),
          "export the package again");
    }
  }
  return {};
}

}  // namespace hexlm
