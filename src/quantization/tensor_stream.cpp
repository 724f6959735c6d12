#include "quantization/tensor_stream.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace hexlm {
namespace {

/// Large enough that a block outweighs its hand-over, small enough that its floats and codes stay in the
/// second-level cache. It also fixes the order in which errors are summed, whatever the number of threads.
constexpr int64_t block_elements = int64_t{1} << 18;
/// Blocks per thread in one batch: the wait at its end is at most one block's time in four.
constexpr int64_t blocks_per_thread = 4;

/// How a tensor is cut: `rows` rows of `columns` in blocks of `block_rows`. Float codecs have no row
/// structure, so their elements are cut evenly, as rows of one element.
struct Cut {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t block_rows = 0;
  int64_t blocks() const { return (rows + block_rows - 1) / block_rows; }
  int64_t rows_of(int64_t block) const { return std::min(block_rows, rows - block * block_rows); }
};

Cut cut_tensor(const Codec& codec, const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  if (codec.is_float()) return {elements, 1, block_elements};
  const int64_t columns = std::max<int64_t>(1, elements / std::max<int64_t>(1, shape[0]));
  return {shape[0], columns, std::max<int64_t>(1, block_elements / columns)};
}

/// The position of an element in its tensor.
std::vector<int64_t> position_of(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> position(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    position[i] = flat % shape[i];
    flat /= shape[i];
  }
  return position;
}

}  // namespace

struct TensorStream::Tensor {
  const TensorView& source;
  const SourceFile& file;
  const ExportTensor& plan;
  Hasher& source_hash;
  Cut cut;
  Hasher checksum;
  Method method;
  std::vector<std::byte> group_scales;
  std::vector<uint16_t> scales;
  std::vector<uint16_t> offsets;
  double squared_error = 0;
  double squared_norm = 0;

  /// The source bytes of blocks first … first + count − 1.
  std::span<const std::byte> bytes_of(int64_t first, int64_t count) const {
    const int64_t row_bytes = cut.columns * bit_width(source.dtype) / 8;
    const int64_t begin = std::min(first * cut.block_rows, cut.rows);
    const int64_t end = std::min((first + count) * cut.block_rows, cut.rows);
    return source.bytes.subspan(static_cast<size_t>(begin * row_bytes),
                                static_cast<size_t>((end - begin) * row_bytes));
  }

  std::optional<EncodeFault> encode(int64_t block, EncodedRows& encoded) const {
    const std::byte* from = bytes_of(block, 1).data();
    const int64_t rows = cut.rows_of(block);
    // One long row is the same bytes as many rows of one element, and one call.
    if (plan.codec.is_float()) return encode_rows(from, source.dtype, 1, rows, plan.codec, method, encoded);
    return encode_rows(from, source.dtype, rows, cut.columns, plan.codec, method, encoded);
  }

  Error describe_fault(const EncodeFault& fault, int64_t block) const {
    const int64_t flat = (block * cut.block_rows + fault.row) * cut.columns + fault.column;
    const std::string origin = fmt::format("{}: tensor '{}'", file.path, source.name);
    return describe(fault, plan.codec, origin, position_of(flat, plan.shape));
  }
};

Status TensorStream::write_batch(Tensor& tensor, const Batch& batch) {
  for (int64_t i = 0; i < batch.count; ++i) {
    const EncodedRows& block = batch.blocks[static_cast<size_t>(i)];
    HEXLM_TRY(writer_.write(block.data));
    tensor.checksum.update(block.data);
    tensor.source_hash.update(tensor.bytes_of(batch.first + i, 1));
    tensor.group_scales.insert(tensor.group_scales.end(), block.group_scales.begin(),
                               block.group_scales.end());
    tensor.scales.insert(tensor.scales.end(), block.scales.begin(), block.scales.end());
    tensor.offsets.insert(tensor.offsets.end(), block.offsets.begin(), block.offsets.end());
    tensor.squared_error += block.squared_error;
    tensor.squared_norm += block.squared_norm;
  }
  return {};
}

Status TensorStream::finish_batch(Tensor& tensor, const Batch& batch, const Advance& advance) {
  if (batch.count == 0) return {};
  const auto bytes = tensor.bytes_of(batch.first, batch.count);
  if (tensor.file.mapping != nullptr) tensor.file.mapping->release(bytes);
  if (!advance(bytes.size())) {
    return fail(ErrorCode::interrupted, fmt::format("export interrupted at tensor '{}'", tensor.plan.name));
  }
  return {};
}

Result<PackageTensor> TensorStream::finish(Tensor& tensor) {
  if (!tensor.group_scales.empty()) {
    HEXLM_TRY(writer_.write(tensor.group_scales));
    tensor.checksum.update(tensor.group_scales);
  }
  for (const std::vector<uint16_t>* part : {&tensor.scales, &tensor.offsets}) {
    if (part->empty()) continue;
    const auto bytes = std::as_bytes(std::span(*part));
    HEXLM_TRY(writer_.write(bytes));
    tensor.checksum.update(bytes);
  }
  if (tensor.file.mapping != nullptr) tensor.file.mapping->release(tensor.source.bytes);
  PackageTensor written;
  written.name = tensor.plan.name;
  written.codec = tensor.plan.codec;
  written.shape = tensor.plan.shape;
  written.stored_bytes = tensor.plan.stored_bytes;
  written.checksum = tensor.checksum.digest();
  written.relative_error =
      tensor.squared_norm > 0 ? std::sqrt(tensor.squared_error / tensor.squared_norm) : 0;
  return written;
}

Result<PackageTensor> TensorStream::write(const TensorView& source, const SourceFile& file,
                                          const ExportTensor& plan, Hasher& source_hash,
                                          const Advance& advance) {
  Tensor tensor{source, file, plan, source_hash, cut_tensor(plan.codec, plan.shape), {}, method_, {}, {}, {}};
  const int64_t blocks = tensor.cut.blocks();
  if (!plan.codec.is_float()) {
    const auto groups = static_cast<size_t>(tensor.cut.rows * plan.codec.groups(tensor.cut.columns));
    tensor.scales.reserve(groups);
    if (!plan.codec.symmetric) tensor.offsets.reserve(groups);
  }
  const int64_t batch_size = pool_.threads() * blocks_per_thread;
  for (Batch& batch : batches_) {
    batch.count = 0;
    batch.blocks.resize(static_cast<size_t>(batch_size));
    batch.faults.resize(static_cast<size_t>(batch_size));
  }
  bool more = true;
  for (int64_t first = 0, turn = 0; more; first += batch_size, ++turn) {
    Batch& current = batches_[turn % 2];
    const Batch& former = batches_[(turn + 1) % 2];
    current.first = std::min(first, blocks);
    current.count = std::clamp<int64_t>(blocks - first, 0, batch_size);
    more = current.count > 0;
    if (file.mapping != nullptr) file.mapping->will_need(tensor.bytes_of(first + batch_size, batch_size));
    Status written;
    pool_.run(1 + current.count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        if (i == 0) {
          written = write_batch(tensor, former);
        } else {
          const auto slot = static_cast<size_t>(i - 1);
          current.faults[slot] = tensor.encode(current.first + i - 1, current.blocks[slot]);
        }
      }
    });
    HEXLM_TRY(written);
    for (int64_t i = 0; i < current.count; ++i) {
      const auto& fault = current.faults[static_cast<size_t>(i)];
      if (fault) return tl::unexpected<Error>(tensor.describe_fault(*fault, current.first + i));
    }
    HEXLM_TRY(finish_batch(tensor, former, advance));
  }
  return finish(tensor);
}

Result<PackageTensor> TensorStream::copy(const TensorView& source, const SourceFile& file,
                                         const PreparedTensor& prepared, Hasher& source_hash,
                                         const Advance& advance) {
  for (const TensorView& part : prepared.parts) HEXLM_TRY(writer_.write(part.bytes));
  source_hash.update(source.bytes);
  if (file.mapping != nullptr) file.mapping->release(source.bytes);
  if (!advance(source.bytes.size())) {
    return fail(ErrorCode::interrupted,
                fmt::format("export interrupted at tensor '{}'", prepared.stored.name));
  }
  return prepared.stored;
}

Result<PackageTensor> TensorStream::copy(const WeightView& weight, const ExportTensor& plan,
                                         Hasher& source_hash, const Advance& advance) {
  Hasher checksum;
  for (const TensorView* part : {&weight.data, &weight.scales, &weight.offsets}) {
    HEXLM_TRY(writer_.write(part->bytes));
    checksum.update(part->bytes);
    source_hash.update(part->bytes);
  }
  if (!advance(weight.stored_bytes())) {
    return fail(ErrorCode::interrupted, fmt::format("export interrupted at tensor '{}'", plan.name));
  }
  PackageTensor written;
  written.name = plan.name;
  written.codec = plan.codec;
  written.shape = plan.shape;
  written.stored_bytes = plan.stored_bytes;
  written.checksum = checksum.digest();
  return written;
}

uint64_t stream_memory(const ExportTensor& tensor, int threads) {
  const Cut cut = cut_tensor(tensor.codec, tensor.shape);
  const auto elements = static_cast<uint64_t>(std::max<int64_t>(1, cut.rows * cut.columns));
  const auto block = static_cast<uint64_t>(std::min(cut.block_rows, cut.rows) * cut.columns);
  // No more blocks than the tensor has, whatever the number of threads.
  const auto blocks = std::min<int64_t>(int64_t{threads} * blocks_per_thread, cut.blocks());
  const uint64_t in_flight = std::min(static_cast<uint64_t>(blocks) * block, elements);
  // Two batches encoded, three of source pages (written, encoded, read ahead), a block of floats and codes a
  // thread.
  const uint64_t stored = in_flight * tensor.stored_bytes / elements;
  const uint64_t source = in_flight * tensor.source_bytes / elements;
  const uint64_t scratch =
      static_cast<uint64_t>(std::min<int64_t>(threads, blocks)) * block * (sizeof(float) + 1);
  uint64_t scales = 0;
  if (!tensor.codec.is_float()) {
    const int64_t groups = tensor.codec.groups(cut.columns) * (tensor.codec.symmetric ? 1 : 2);
    scales = static_cast<uint64_t>(cut.rows * groups * tensor.codec.scale_bytes());
  }
  // A computed tensor is whole in memory, and so are the stored values it is made from.
  const uint64_t whole = tensor.computed ? 2 * tensor.source_bytes : 0;
  return 2 * stored + 3 * source + scratch + scales + whole;
}

}  // namespace hexlm
