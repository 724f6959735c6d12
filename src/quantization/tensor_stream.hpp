#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/mapped_file.hpp"
#include "base/thread_pool.hpp"
#include "formats/package.hpp"
#include "formats/safetensors.hpp"
#include "quantization/encode.hpp"
#include "quantization/export.hpp"
#include "quantization/work_folder.hpp"

namespace hexlm {

/// Where the bytes of a tensor lie: pages of `mapping` are released behind the reader; nullptr for computed
/// ones.
struct SourceFile {
  const MappedFile* mapping = nullptr;
  std::string path;  ///< for messages
};

/// Encodes tensors in blocks of rows and writes them: a batch of blocks is encoded while the one before it is
/// written, so the memory is bounded by two batches and the scales of the largest tensor.
class TensorStream {
 public:
  /// Returns false to stop. Receives how many more bytes of the source were consumed.
  using Advance = std::function<bool(uint64_t bytes)>;

  TensorStream(SafetensorsWriter& writer, ThreadPool& pool, Method method)
      : writer_(writer), pool_(pool), method_(method) {}

  /// Encodes `source` as `plan` says and writes its parts in tensor_plans() order.
  /// `source_hash` is fed with the source's bytes. A mapped file's pages are released behind the reader.
  /// Errors: bad_input naming file, tensor, element and value; interrupted; what the writer reports.
  Result<PackageTensor> write(const TensorView& source, const SourceFile& file, const ExportTensor& plan,
                              Hasher& source_hash, const Advance& advance);
  /// Writes parts that calibration has made of `source`.
  Result<PackageTensor> copy(const TensorView& source, const SourceFile& file, const PreparedTensor& prepared,
                             Hasher& source_hash, const Advance& advance);
  /// Writes a weight that is encoded already, part by part.
  Result<PackageTensor> copy(const WeightView& weight, const ExportTensor& plan, Hasher& source_hash,
                             const Advance& advance);

 private:
  struct Tensor;
  struct Batch {
    int64_t first = 0;
    int64_t count = 0;
    std::vector<EncodedRows> blocks;
    std::vector<std::optional<EncodeFault>> faults;
  };
  Status write_batch(Tensor& tensor, const Batch& batch);
  Status finish_batch(Tensor& tensor, const Batch& batch, const Advance& advance);
  Result<PackageTensor> finish(Tensor& tensor);

  SafetensorsWriter& writer_;
  ThreadPool& pool_;
  Method method_;
  Batch batches_[2];
};

/// About what one tensor's stream holds resident: buffers, source pages and scales.
uint64_t stream_memory(const ExportTensor& tensor, int threads);

}  // namespace hexlm
