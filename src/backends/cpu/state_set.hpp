#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/backend.hpp"
#include "base/aligned_buffer.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// How the states of one plan lie in memory; shared by the plan and its state sets, and their mark of
/// kinship.
struct StateLayout {
  std::vector<State> states;
  int64_t context = 0;
  CacheType cache = CacheType::f32;
  /// Errors: limit when a size overflows.
  static Result<std::shared_ptr<const StateLayout>> create(const Graph& graph, const PlanOptions& options);
};

/// Keys and values of one layer, each [heads][context][head_dim], in reserved memory: a cache costs what is
/// used of it and never moves.
struct KeyValueCache {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  int64_t head_stride = 0;      ///< elements between heads
  float* key_scales = nullptr;  ///< [heads][context], of an int8 cache
  float* value_scales = nullptr;
  int64_t scale_stride = 0;
};

class CpuStateSet final : public StateSet {
 public:
  static Result<std::unique_ptr<CpuStateSet>> create(std::shared_ptr<const StateLayout> layout);

  int64_t length() const override { return length_; }
  int64_t capacity() const override { return layout_->context; }
  void reset() override;
  Result<std::unique_ptr<StateSnapshot>> snapshot() const override;
  Status restore(const StateSnapshot& snapshot) override;
  bool can_truncate() const override { return recurrent_bytes_ == 0; }
  Status truncate(int64_t length) override;
  uint64_t resident_bytes() const override;

  const StateLayout& layout() const { return *layout_; }
  KeyValueCache cache(StateId id);
  /// Convolution or delta-net state, in the shape the kernels take.
  float* recurrent(StateId id) { return buffers_[static_cast<size_t>(id.index)].as<float>(); }
  /// The `tokens` entries after `length()` have been written.
  void advance(int64_t tokens);

 private:
  explicit CpuStateSet(std::shared_ptr<const StateLayout> layout) : layout_(std::move(layout)) {}
  void rewind(int64_t length);

  /// The first write after a rewind, at entry `start`. Kept with strictly rising starts: of two writes, the
  /// later one spoils every snapshot that the earlier one spoils if it starts no higher.
  struct Overwrite {
    uint64_t clock = 0;
    int64_t start = 0;
  };
  std::shared_ptr<const StateLayout> layout_;
  std::shared_ptr<const char> identity_ = std::make_shared<const char>('\0');
  std::vector<AlignedBuffer> buffers_;
  size_t recurrent_bytes_ = 0;
  int64_t length_ = 0;
  int64_t high_water_ = 0;
  mutable uint64_t clock_ = 0;  ///< moves with every snapshot
  bool rewound_ = false;
  std::vector<Overwrite> overwrites_;
};

}  // namespace hexlm
