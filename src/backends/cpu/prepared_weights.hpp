#pragma once

#include <memory>
#include <vector>

#include "backends/backend.hpp"
#include "base/aligned_buffer.hpp"
#include "base/thread_pool.hpp"
#include "kernels/kernels.hpp"

namespace hexlm {

/// One matrix that inputs are multiplied with: packed for int8 dot products, or as it is stored.
struct PreparedMatrix {
  bool is_packed = false;
  PackedMatrix packed;
  MatrixView stored;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t tiles() const { return (rows + packed_tile_rows - 1) / packed_tile_rows; }
};

/// Every parameter of a graph in the form its readers take. Stored forms point into the source's mapped
/// files, which this keeps alive.
class PreparedWeights {
 public:
  /// Finds and checks every parameter, then packs those matrices that the source does not have packed (in
  /// parallel) and converts vectors. Errors:
  /// bad_input, naming the source, the tensor and both values; limit when memory runs out.
  static Result<PreparedWeights> prepare(const Graph& graph, std::shared_ptr<const WeightSource> source,
                                         Precision precision, const KernelSet& kernels, ThreadPool& pool);

  /// As prepare, but packs and converts nothing: says which matrices would be packed, and how.
  static Result<PreparedWeights> describe(const Graph& graph, std::shared_ptr<const WeightSource> source,
                                          Precision precision);

  const PreparedMatrix& matrix(ParameterId id) const {
    return entries_[static_cast<size_t>(id.index)].matrix;
  }
  /// The stored form, for reading single rows.
  const MatrixView& table(ParameterId id) const { return matrix(id).stored; }
  /// All elements as floats; only for parameters that some op reads as a vector.
  const float* vector(ParameterId id) const {
    return vectors_.as<float>() + entries_[static_cast<size_t>(id.index)].vector_offset;
  }
  /// Packed matrices and vectors, and the mapped bytes of those matrices that are read as they lie in files.
  uint64_t bytes() const { return bytes_; }

 private:
  /// How ops read a parameter; one may be read in several ways (a tied embedding is a table and a matrix).
  struct Entry {
    bool is_matrix = false;
    bool is_table = false;
    bool is_vector = false;
    WeightView view;
    PreparedMatrix matrix;
    const PackedParts* mapped = nullptr;  ///< the packed form, where the source has it
    int64_t elements = 0;
    size_t vector_offset = 0;  ///< floats
    size_t code_offset = 0;    ///< bytes
    size_t scale_offset = 0;
    size_t offset_offset = 0;
  };
  void find_readers(const Graph& graph);
  Status find_views(const Graph& graph, Precision precision);
  Status find_mapped(const Graph& graph);
  Status check_sums(const Graph& graph, ThreadPool& pool) const;
  Status allocate();
  void pack_all(const KernelSet& kernels, ThreadPool& pool);
  void convert_vectors(const KernelSet& kernels);

  std::shared_ptr<const WeightSource> source_;
  std::vector<Entry> entries_;
  AlignedBuffer vectors_;
  AlignedBuffer packed_;
  uint64_t bytes_ = 0;
};

}  // namespace hexlm
