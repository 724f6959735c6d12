#include <atomic>
#include <cstdlib>
#include <new>

#include "support.hpp"

namespace {
std::atomic<int64_t> allocations{0};
}

// Replaces the program's allocator by one that counts; the other forms end up here.
void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hexlm {
namespace {

/// `run` never allocates: not in prefill, not in decoding, and not after a rewind, which is noted when it is
/// written over.
TEST(Allocation, NoneWhileAPlanRuns) {
  for (const std::string name : {"qwen2_tied", "qwen3_moe", "qwen3_5_text"}) {
    const ReferenceCase reference = load_case(name);
    const auto weights = encode_case(reference, *parse_codec("w4g64"), false);
    PlanOptions options;
    options.threads = 2;
    options.max_tokens = 16;
    options.max_rows = 1;
    options.context = 64;
    const auto plan = compile_or_fail(reference.graph, weights, options);
    const auto state = plan->create_state();
    ASSERT_TRUE(state);
    const std::vector<int32_t> tokens = reference.tokens("short");
    const std::vector<int32_t> positions(size_t{3} * 16, 0);
    const int32_t row = 0;
    std::vector<float> logits(static_cast<size_t>(reference.vocabulary));
    const std::vector<const void*> inputs = {tokens.data(), positions.data(), &row};
    const std::vector<float*> outputs = {logits.data()};
    const auto run = [&](int64_t count) {
      SymbolValues symbols;
      symbols.tokens = count;
      symbols.rows = 1;
      const int64_t before = allocations;
      const bool ok = plan->run({symbols, inputs, outputs, nullptr}, **state).has_value();
      EXPECT_EQ(allocations - before, 0) << name << " " << count;
      EXPECT_TRUE(ok);
    };
    run(16);
    run(1);
    const auto snapshot = (*state)->snapshot();
    ASSERT_TRUE(snapshot);
    run(3);
    for (int round = 0; round < 5; ++round) {
      ASSERT_TRUE((*state)->restore(**snapshot));
      run(4);
    }
    (*state)->reset();
    run(7);
    EXPECT_GT(allocations, 0);
  }
}

}  // namespace
}  // namespace hexlm
