#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sample_graphs.hpp"

namespace hexlm {
namespace {

// Every op with its attributes, as `inspect --graph` prints it.
constexpr const char* golden =
    R"(graph 3 inputs, 1 outputs, 3 states, 19 parameters, 22 nodes
input ids I32 [T]
input positions I32 [3, T]
input rows I32 [R]
state cache key_value_cache [2, 4]
state taps convolution [8, 2]
state memory delta_net [2, 2, 2]
node embed = embedding(ids) {table [16, 8] embedding} -> F32 [T, 8]
node norm = rms_norm(embed) epsilon=1e-06 weight_offset=1 {norm.w [8] vector} -> F32 [T, 8]
node q = linear(norm) {q.w [16, 8] linear; q.b [16] vector} -> F32 [T, 16]
node heads = reshape(q) shape=[T, 2, 8] -> F32 [T, 2, 8]
node query = slice(heads) begin=0 end=4 -> F32 [T, 2, 4]
node key = slice(heads) begin=4 end=8 -> F32 [T, 2, 4]
node rope = rope(query, positions) rotary_dim=4 frequencies=1..0.25 streams=TW attention_factor=1 -> F32 [T, 2, 4]
node attention = attention(rope, key, key) query_heads=2 key_value_heads=2 head_dim=4 scale=0.5 <cache> -> F32 [T, 8]
node gated = sigmoid_multiply(attention, norm) -> F32 [T, 8]
node sum = add(embed, gated) -> F32 [T, 8]
node conv = causal_convolution(sum) taps=3 {conv.w [8, 1, 3] vector} <taps> -> F32 [T, 8]
node b = linear(sum) {b.w [2, 8] sensitive} -> F32 [T, 2]
node a = linear(sum) {a.w [2, 8] sensitive} -> F32 [T, 2]
node delta = gated_delta_net(conv, b, a) key_heads=1 value_heads=2 key_dim=2 value_dim=2 norm_epsilon=1e-06 {A_log [2] vector; dt_bias [2] vector} <memory> -> F32 [T, 4]
node z = linear(sum) {z.w [4, 8] linear} -> F32 [T, 4]
node gated_norm = gated_rms_norm(delta, z) epsilon=1e-06 {gated_norm.w [4] vector} -> F32 [T, 4]
node up = linear(gated_norm) {up.w [8, 4] linear} -> F32 [T, 8]
node silu = silu_multiply(up, sum) -> F32 [T, 8]
node router = linear(silu) {router.w [2, 8] linear} -> F32 [T, 2]
node experts = mixture_of_experts(silu, router) experts=2 top_k=1 intermediate=6 normalize=true {e0.gate [6, 8] linear; e0.up [6, 8] linear; e0.down [8, 6] linear; ... 6 in all} -> F32 [T, 8]
node gather = gather_rows(experts, rows) -> F32 [R, 8]
node head = linear(gather) {table [16, 8] embedding} -> F32 [R, 16]
hidden embed F32 [T, 8]
hidden experts F32 [T, 8]
output head F32 [R, 16]
)";

TEST(Dump, ShowsEveryOpItsAttributesAndShapes) {
  auto graph = every_op();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(dump(*graph), golden);
}

TEST(Dump, IsOneLineAnItem) {
  auto graph = every_op();
  ASSERT_TRUE(graph) << graph.error().message;
  const std::string text = dump(*graph);
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  EXPECT_EQ(lines, 1 + graph->inputs().size() + graph->states().size() + graph->nodes().size() +
                       graph->hidden().size() + graph->outputs().size());
}

TEST(OpName, IsStable) {
  EXPECT_EQ(op_name(op::Linear{}), "linear");
  EXPECT_EQ(op_name(op::GatedDeltaNet{}), "gated_delta_net");
  EXPECT_EQ(op_name(op::MixtureOfExperts{}), "mixture_of_experts");
}

}  // namespace
}  // namespace hexlm
