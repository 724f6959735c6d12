#include "backends/cpu/state_set.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <new>

namespace hexlm {
namespace {

/// Copies of the recurrent states, in the order of the graph's states, and the length.
class CpuSnapshot final : public StateSnapshot {
 public:
  CpuSnapshot(std::shared_ptr<const char> identity, uint64_t clock, int64_t length, AlignedBuffer recurrent)
      : identity(std::move(identity)), clock(clock), tokens(length), recurrent(std::move(recurrent)) {}
  int64_t length() const override { return tokens; }

  std::shared_ptr<const char> identity;
  uint64_t clock;
  int64_t tokens;
  AlignedBuffer recurrent;
};

bool is_cache(const State& state) { return state.kind == State::Kind::key_value_cache; }

/// Where scales begin: they are floats, after an even or odd number of bytes.
constexpr int64_t scale_alignment = 64;

/// Bytes of all keys (or values) of a cache, rounded up so that what follows is aligned.
bool numbers_bytes(const StateLayout& layout, const State& state, int64_t& bytes) {
  bytes = element_bytes(layout.cache);
  bool overflow = __builtin_mul_overflow(bytes, layout.context, &bytes);
  for (const int64_t dim : state.dims) overflow = overflow || __builtin_mul_overflow(bytes, dim, &bytes);
  overflow = overflow || __builtin_add_overflow(bytes, scale_alignment - 1, &bytes);
  bytes = bytes / scale_alignment * scale_alignment;
  return !overflow;
}

/// Bytes of a cache: keys, values, and for int8 the scales of each. False when they overflow.
bool cache_bytes(const StateLayout& layout, const State& state, int64_t& bytes) {
  int64_t scales = 0;
  bool fits = numbers_bytes(layout, state, bytes);
  if (layout.cache == CacheType::int8) {
    fits = fits && !__builtin_mul_overflow(layout.context, state.dims[0], &scales) &&
           !__builtin_mul_overflow(scales, int64_t{sizeof(float)}, &scales);
  }
  return fits && !__builtin_add_overflow(bytes, scales, &bytes) && !__builtin_mul_overflow(bytes, 2, &bytes);
}

bool recurrent_bytes(const State& state, int64_t& bytes) {
  bytes = int64_t{sizeof(float)};
  bool overflow = false;
  for (const int64_t dim : state.dims) overflow = overflow || __builtin_mul_overflow(bytes, dim, &bytes);
  return !overflow;
}

/// Bytes of a state's buffer: keys and values of the whole context, or the recurrent matrix.
Result<size_t> state_bytes(const StateLayout& layout, const State& state) {
  int64_t bytes = 0;
  const bool fits = is_cache(state) ? cache_bytes(layout, state, bytes) : recurrent_bytes(state, bytes);
  if (!fits || bytes < 0) {
    return fail(ErrorCode::limit, fmt::format("state {}: {} tokens do not fit into an address space",
                                              state.name, layout.context));
  }
  return static_cast<size_t>(bytes);
}

}  // namespace

Result<std::shared_ptr<const StateLayout>> StateLayout::create(const Graph& graph,
                                                               const PlanOptions& options) {
  auto layout = std::make_shared<StateLayout>();
  layout->states = graph.states();
  layout->context = options.context;
  layout->cache = options.cache.value_or(default_cache(options.precision));
  for (const State& state : layout->states) HEXLM_TRY(state_bytes(*layout, state));
  return layout;
}

Result<std::unique_ptr<CpuStateSet>> CpuStateSet::create(std::shared_ptr<const StateLayout> layout) {
  std::unique_ptr<CpuStateSet> set(new CpuStateSet(std::move(layout)));
  for (const State& state : set->layout_->states) {
    HEXLM_ASSIGN(const size_t bytes, state_bytes(*set->layout_, state));
    HEXLM_ASSIGN(AlignedBuffer buffer,
                 is_cache(state) ? AlignedBuffer::reserve(bytes) : AlignedBuffer::allocate(bytes));
    set->buffers_.push_back(std::move(buffer));
    if (!is_cache(state)) set->recurrent_bytes_ += bytes;
  }
  set->overwrites_.reserve(1);
  return set;
}

KeyValueCache CpuStateSet::cache(StateId id) {
  AlignedBuffer& buffer = buffers_[static_cast<size_t>(id.index)];
  const State& state = layout_->states[static_cast<size_t>(id.index)];
  int64_t numbers = 0;
  numbers_bytes(*layout_, state, numbers);  // did not overflow when the buffer was made
  KeyValueCache cache;
  cache.keys = buffer.data();
  cache.values = buffer.data() + numbers;
  cache.head_stride = layout_->context * state.dims[1];
  if (layout_->cache == CacheType::int8) {
    cache.key_scales = reinterpret_cast<float*>(buffer.data() + 2 * numbers);
    cache.value_scales = cache.key_scales + state.dims[0] * layout_->context;
    cache.scale_stride = layout_->context;
  }
  return cache;
}

/// Room for the overwrite that may follow is made here, so that a run never allocates.
void CpuStateSet::rewind(int64_t length) {
  length_ = length;
  rewound_ = true;
  overwrites_.reserve(overwrites_.size() + 1);
}

void CpuStateSet::reset() {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!is_cache(layout_->states[i]) && buffers_[i].size() > 0)
      std::memset(buffers_[i].data(), 0, buffers_[i].size());
  }
  rewind(0);
}

void CpuStateSet::advance(int64_t tokens) {
  if (rewound_) {
    while (!overwrites_.empty() && overwrites_.back().start >= length_) overwrites_.pop_back();
    overwrites_.push_back({clock_, length_});
    rewound_ = false;
  }
  length_ += tokens;
  high_water_ = std::max(high_water_, length_);
}

Result<std::unique_ptr<StateSnapshot>> CpuStateSet::snapshot() const {
  HEXLM_ASSIGN(AlignedBuffer copy, AlignedBuffer::allocate(recurrent_bytes_));
  size_t offset = 0;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (is_cache(layout_->states[i]) || buffers_[i].size() == 0) continue;
    std::memcpy(copy.data() + offset, buffers_[i].data(), buffers_[i].size());
    offset += buffers_[i].size();
  }
  return std::make_unique<CpuSnapshot>(identity_, clock_++, length_, std::move(copy));
}

Status CpuStateSet::restore(const StateSnapshot& snapshot) {
  const auto* mine = dynamic_cast<const CpuSnapshot*>(&snapshot);
  if (mine == nullptr || mine->identity != identity_) {
    return fail(ErrorCode::runtime, "cannot restore a snapshot that another state set made");
  }
  // Overwrites later than the snapshot bear a clock above its own; the first of them starts lowest.
  for (const Overwrite& overwrite : overwrites_) {
    if (overwrite.clock <= mine->clock || overwrite.start >= mine->tokens) continue;
    return fail(
        ErrorCode::runtime,
        fmt::format(
            "cannot restore a snapshot of {} tokens: the cache was rewound and overwritten from token {} on",
            mine->tokens, overwrite.start));
  }
  size_t offset = 0;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (is_cache(layout_->states[i]) || buffers_[i].size() == 0) continue;
    std::memcpy(buffers_[i].data(), mine->recurrent.data() + offset, buffers_[i].size());
    offset += buffers_[i].size();
  }
  rewind(mine->tokens);
  return {};
}

Status CpuStateSet::truncate(int64_t length) {
  if (!can_truncate()) {
    return fail(ErrorCode::unsupported, "a model with recurrent states cannot drop its last tokens",
                "restore a snapshot, or reset and replay");
  }
  if (length < 0 || length > length_) {
    return fail(ErrorCode::usage, fmt::format("cannot truncate {} tokens to {}", length_, length));
  }
  if (length < length_) rewind(length);
  return {};
}

uint64_t CpuStateSet::resident_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const State& state = layout_->states[i];
    if (!is_cache(state)) {
      bytes += buffers_[i].size();
      continue;
    }
    // Pages of 4 KB: keys and values of each head start on their own.
    const auto pages = [](int64_t used) { return static_cast<uint64_t>((used + 4095) / 4096); };
    uint64_t of_head = pages(high_water_ * state.dims[1] * element_bytes(layout_->cache));
    if (layout_->cache == CacheType::int8) of_head += pages(high_water_ * int64_t{sizeof(float)});
    bytes +=
        std::min<uint64_t>(buffers_[i].size(), 2 * static_cast<uint64_t>(state.dims[0]) * of_head * 4096);
  }
  return bytes;
}

}  // namespace hexlm
