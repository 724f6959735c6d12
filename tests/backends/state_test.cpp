#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <map>

#include "backends/cpu/state_set.hpp"
#include "support.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

PlanOptions small_options(int64_t context = 64) {
  PlanOptions options;
  options.precision = Precision::high;
  options.max_tokens = 32;
  options.max_rows = 32;
  options.context = context;
  return options;
}

/// An attention-only and a hybrid model.
class States : public testing::TestWithParam<std::string> {
 protected:
  States()
      : reference_(load_case(GetParam())),
        tokens_(reference_.tokens("short")),
        runner_(reference_.graph, reference_.weights, small_options()) {}

  std::span<const int32_t> tokens(size_t begin, size_t count) const {
    return std::span(tokens_).subspan(begin, count);
  }
  /// The logits of the last of `tokens` after a fresh run over all of them.
  std::vector<float> fresh(std::span<const int32_t> tokens) {
    Runner other(reference_.graph, reference_.weights, small_options());
    const std::vector<float> logits = other.logits(tokens, 32);
    return {logits.end() - reference_.vocabulary, logits.end()};
  }
  std::unique_ptr<StateSnapshot> snapshot() {
    auto made = runner_.state().snapshot();
    EXPECT_TRUE(made);
    return made ? std::move(*made) : nullptr;
  }
  std::vector<float> last(std::span<const int32_t> tokens) {
    const std::vector<float> logits = runner_.logits(tokens, 32);
    return {logits.end() - reference_.vocabulary, logits.end()};
  }
  void expect_same(const std::vector<float>& got, const std::vector<float>& expected) {
    EXPECT_LE(relative_error(got, expected), 1e-4);
  }
  std::vector<int32_t> joined(std::span<const int32_t> a, std::span<const int32_t> b) {
    std::vector<int32_t> all(a.begin(), a.end());
    all.insert(all.end(), b.begin(), b.end());
    return all;
  }

  ReferenceCase reference_;
  std::vector<int32_t> tokens_;
  Runner runner_;
};

TEST_P(States, CountTokensAndForgetThemOnReset) {
  EXPECT_EQ(runner_.state().length(), 0);
  EXPECT_EQ(runner_.state().capacity(), 64);
  const std::vector<float> first = last(tokens(0, 20));
  EXPECT_EQ(runner_.state().length(), 20);
  runner_.state().reset();
  EXPECT_EQ(runner_.state().length(), 0);
  EXPECT_EQ(last(tokens(0, 20)), first);
}

TEST_P(States, SnapshotsBringBackTheirMoment) {
  runner_.logits(tokens(0, 12), 32);
  const auto snapshot = this->snapshot();
  EXPECT_EQ(snapshot->length(), 12);
  const std::vector<float> straight = last(tokens(12, 8));
  ASSERT_TRUE(runner_.state().restore(*snapshot));
  EXPECT_EQ(runner_.state().length(), 12);
  EXPECT_EQ(last(tokens(12, 8)), straight);
  // Another continuation, then the first one again: the prefix was never touched.
  ASSERT_TRUE(runner_.state().restore(*snapshot));
  expect_same(last(tokens(25, 7)), fresh(joined(tokens(0, 12), tokens(25, 7))));
  ASSERT_TRUE(runner_.state().restore(*snapshot));
  EXPECT_EQ(last(tokens(12, 8)), straight);
}

TEST_P(States, SnapshotsOfAnOverwrittenPrefixAreRefused) {
  runner_.logits(tokens(0, 6), 32);
  const auto early = snapshot();
  runner_.logits(tokens(6, 10), 32);
  const auto late = snapshot();
  ASSERT_TRUE(runner_.state().restore(*early));
  // Rewound, but not overwritten: the later one still stands.
  ASSERT_TRUE(runner_.state().restore(*late));
  ASSERT_TRUE(runner_.state().restore(*early));
  runner_.logits(tokens(20, 3), 32);
  const Status refused = runner_.state().restore(*late);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::runtime);
  EXPECT_THAT(refused.error().message, HasSubstr("16 tokens"));
  EXPECT_THAT(refused.error().message, HasSubstr("from token 6"));
  EXPECT_EQ(runner_.state().length(), 9);
  // Growing past the old length does not heal it, and the early one is whole.
  runner_.logits(tokens(0, 20), 32);
  EXPECT_FALSE(runner_.state().restore(*late));
  ASSERT_TRUE(runner_.state().restore(*early));
  expect_same(last(tokens(6, 10)), fresh(tokens(0, 16)));
  // A snapshot taken after the overwrite is not spoiled by it.
  const auto again = snapshot();
  runner_.logits(tokens(16, 4), 32);
  EXPECT_TRUE(runner_.state().restore(*again));
}

TEST_P(States, ResetSpoilsSnapshotsOnceItIsWrittenOver) {
  runner_.logits(tokens(0, 6), 32);
  const auto snapshot = this->snapshot();
  runner_.state().reset();
  ASSERT_TRUE(runner_.state().restore(*snapshot));
  expect_same(last(tokens(6, 2)), fresh(tokens(0, 8)));
  runner_.state().reset();
  runner_.logits(tokens(8, 1), 32);
  EXPECT_FALSE(runner_.state().restore(*snapshot));
}

TEST_P(States, EmptySnapshotsAlwaysStand) {
  const auto empty = snapshot();
  runner_.logits(tokens(0, 6), 32);
  runner_.state().reset();
  runner_.logits(tokens(3, 6), 32);
  ASSERT_TRUE(runner_.state().restore(*empty));
  EXPECT_EQ(last(tokens(0, 20)), fresh(tokens(0, 20)));
}

TEST_P(States, SnapshotsOfOtherStateSetsAreRefused) {
  auto other = runner_.plan().create_state();
  ASSERT_TRUE(other);
  auto snapshot = (*other)->snapshot();
  ASSERT_TRUE(snapshot);
  other->reset();  // its memory may now be given to a new state set
  const Status refused = runner_.state().restore(**snapshot);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::runtime);
}

TEST_P(States, TruncateDropsTheEndOrIsRefused) {
  runner_.logits(tokens(0, 16), 32);
  if (!runner_.state().can_truncate()) {
    EXPECT_EQ(GetParam(), "qwen3_5_text");
    const Status refused = runner_.state().truncate(8);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_EQ(runner_.state().length(), 16);
    return;
  }
  EXPECT_NE(GetParam(), "qwen3_5_text");
  const auto late = snapshot();
  ASSERT_TRUE(runner_.state().truncate(16));
  ASSERT_TRUE(runner_.state().truncate(10));
  EXPECT_EQ(runner_.state().length(), 10);
  ASSERT_TRUE(runner_.state().restore(*late));
  ASSERT_TRUE(runner_.state().truncate(10));
  expect_same(last(tokens(20, 5)), fresh(joined(tokens(0, 10), tokens(20, 5))));
  EXPECT_FALSE(runner_.state().restore(*late));
  const Status too_long = runner_.state().truncate(16);
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::usage);
  EXPECT_FALSE(runner_.state().truncate(-1));
}

TEST_P(States, AFullContextIsALimitThatNamesTheCounts) {
  runner_.logits(tokens(0, 30), 32);
  runner_.logits(tokens(0, 30), 32);
  std::vector<float> logits;
  const Status full = runner_.step(tokens(0, 5), true, logits);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::limit);
  EXPECT_THAT(full.error().message, HasSubstr("60 tokens held, 5 to add, room for 64"));
  EXPECT_EQ(runner_.state().length(), 60);
  EXPECT_TRUE(runner_.step(tokens(0, 4), true, logits));
  EXPECT_EQ(runner_.state().length(), 64);
  EXPECT_FALSE(runner_.step(tokens(0, 1), true, logits));
}

TEST_P(States, SeveralSequencesShareAPlan) {
  auto other = runner_.plan().create_state();
  ASSERT_TRUE(other);
  runner_.logits(tokens(0, 10), 32);
  EXPECT_EQ((*other)->length(), 0);
  EXPECT_EQ(last(tokens(10, 10)), [&] {
    Runner one(reference_.graph, reference_.weights, small_options());
    one.logits(tokens(0, 10), 32);
    const std::vector<float> logits = one.logits(tokens(10, 10), 32);
    return std::vector<float>(logits.end() - reference_.vocabulary, logits.end());
  }());
}

TEST_P(States, ACacheCostsWhatIsUsedOfIt) {
  Runner large(reference_.graph, reference_.weights, small_options(int64_t{1} << 24));
  const uint64_t before = large.state().resident_bytes();
  large.logits(tokens(0, 20), 32);
  EXPECT_GT(large.state().resident_bytes(), before);
  EXPECT_LT(large.state().resident_bytes(), uint64_t{1} << 20);
}

TEST_P(States, OfEveryCacheTypeGrowInPlaceAndComeBack) {
  for (const CacheType cache : cache_types) {
    SCOPED_TRACE(to_string(cache));
    PlanOptions options = small_options(int64_t{1} << 24);
    options.cache = cache;
    Runner runner(reference_.graph, reference_.weights, options);
    const auto last_of = [&](std::span<const int32_t> tokens) {
      const std::vector<float> logits = runner.logits(tokens, 32);
      return std::vector<float>(logits.end() - reference_.vocabulary, logits.end());
    };
    auto& state = dynamic_cast<CpuStateSet&>(runner.state());
    const auto& states = reference_.graph->states();
    const auto found = std::find_if(states.begin(), states.end(), [](const State& each) {
      return each.kind == State::Kind::key_value_cache;
    });
    const StateId id{static_cast<int32_t>(found - states.begin())};
    last_of(tokens(0, 12));
    const KeyValueCache before = state.cache(id);
    const auto head = static_cast<size_t>(12 * found->dims[1] * element_bytes(cache));
    const std::vector<std::byte> old(before.values, before.values + head);
    auto snapshot = state.snapshot();
    ASSERT_TRUE(snapshot);
    const std::vector<float> straight = last_of(tokens(12, 8));
    EXPECT_EQ(state.cache(id).keys, before.keys);
    EXPECT_EQ(std::memcmp(state.cache(id).values, old.data(), head), 0);
    EXPECT_LT(state.resident_bytes(), uint64_t{1} << 20);
    ASSERT_TRUE(state.restore(**snapshot));
    EXPECT_EQ(last_of(tokens(12, 8)), straight);
  }
}

TEST(CacheBytes, AreThoseOfTheType) {
  const ReferenceCase reference = load_case("qwen3");
  std::map<CacheType, uint64_t> bytes;
  for (const CacheType cache : cache_types) {
    PlanOptions options = small_options(4096);
    options.max_tokens = 32;
    options.cache = cache;
    Runner runner(reference.graph, reference.weights, options);
    const std::vector<int32_t> tokens(2048, 3);
    runner.logits(tokens, 32);
    bytes[cache] = runner.state().resident_bytes();
  }
  EXPECT_EQ(bytes[CacheType::f32], 2 * bytes[CacheType::f16]);
  // Half of f16, and four bytes a head.
  const auto numbers = static_cast<double>(bytes[CacheType::f16]);
  EXPECT_GT(static_cast<double>(bytes[CacheType::int8]), 0.5 * numbers);
  EXPECT_LT(static_cast<double>(bytes[CacheType::int8]), 0.7 * numbers);
}

INSTANTIATE_TEST_SUITE_P(Models, States, testing::Values("qwen3", "qwen3_5_text"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hexlm
