#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>

#include "formats/checkpoint_weights.hpp"
#include "models/tensor_names.hpp"
#include "sample_configs.hpp"

namespace hexlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::map<ParameterRole, int> count_roles(const Graph& graph) {
  std::map<ParameterRole, int> counts;
  for (const Parameter& parameter : graph.parameters()) ++counts[parameter.role];
  return counts;
}

const Node* find_node(const Graph& graph, std::string_view name) {
  for (const Node& node : graph.nodes()) {
    if (node.name == name) return &node;
  }
  return nullptr;
}

class ReferenceCheckpoints : public ::testing::TestWithParam<const char*> {};

// The definition asks for exactly the tensors that transformers saved, in their shapes.
TEST_P(ReferenceCheckpoints, HoldTheGraphsParameters) {
  const std::string folder = "reference/" + std::string(GetParam()) + "/checkpoint";
  ModelConfig config = config_file(folder + "/config.json");
  auto checkpoint = Checkpoint::open(test_data(folder));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const bool has_head = checkpoint->find("lm_head.weight") != nullptr;
  EXPECT_EQ(config.text.tied_embeddings, !has_head);
  apply_checkpoint_facts(config, has_head);
  const Graph graph = built(config);

  std::set<std::string> wanted;
  for (const Parameter& parameter : graph.parameters()) {
    const std::string name = checkpoint_name(config, parameter.name);
    EXPECT_EQ(canonical_name(name), parameter.name);
    const TensorView* tensor = checkpoint->find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shape, parameter.shape) << name;
    wanted.insert(name);
  }
  for (const TensorView* tensor : checkpoint->tensors())
    EXPECT_TRUE(wanted.contains(tensor->name)) << tensor->name;
}

INSTANTIATE_TEST_SUITE_P(Definitions, ReferenceCheckpoints,
                         ::testing::Values("qwen2_tied", "qwen2_untied_sharded", "qwen2_yarn", "qwen3",
                                           "qwen3_moe", "llama3", "qwen3_5_text"),
                         [](const auto& info) { return std::string(info.param); });

class ConfigFiles : public ::testing::TestWithParam<const char*> {};

TEST_P(ConfigFiles, Build) {
  const ModelConfig config = config_file(std::string(GetParam()) + "/config.json");
  const Graph graph = built(config);
  ASSERT_EQ(graph.inputs().size(), 3U);
  EXPECT_EQ(graph.value(graph.inputs()[0]).name, "ids");
  EXPECT_EQ(graph.value(graph.inputs()[1]).name, "positions");
  EXPECT_EQ(to_string(graph.value(graph.inputs()[1]).shape), "[3, T]");
  EXPECT_EQ(graph.value(graph.inputs()[2]).name, "rows");
  ASSERT_EQ(graph.outputs().size(), 1U);
  EXPECT_EQ(graph.value(graph.outputs()[0]).shape, (Shape{rows_dim, dim(config.text.vocabulary_size)}));
  ASSERT_EQ(graph.hidden().size(), static_cast<size_t>(config.text.layers) + 1);
  EXPECT_EQ(graph.value(graph.hidden().front()).name, "embed_tokens");
  EXPECT_EQ(graph.value(graph.hidden().back()).name, "norm");
  for (ValueId id : graph.hidden()) {
    EXPECT_EQ(graph.value(id).shape, (Shape{tokens_dim, dim(config.text.hidden_size)}));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Definitions, ConfigFiles,
    ::testing::Values("configs/qwen2.5-0.5b", "configs/qwen3-0.6b", "configs/qwen3-1.7b",
                      "configs/qwen3.5-0.8b", "configs/qwen3.5-2b", "reference/llama3/checkpoint",
                      "reference/qwen2_5_vl/checkpoint", "reference/qwen2_tied/checkpoint",
                      "reference/qwen2_untied_sharded/checkpoint", "reference/qwen2_vl/checkpoint",
                      "reference/qwen2_yarn/checkpoint", "reference/qwen3/checkpoint",
                      "reference/qwen3_5_text/checkpoint", "reference/qwen3_5_vl/checkpoint",
                      "reference/qwen3_moe/checkpoint", "reference/qwen3_vl/checkpoint"),
    [](const auto& info) {
      std::string name = info.param;
      std::replace_if(name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

// Published parameter counts, to the last one: 0.494 B for Qwen2.5-0.5B, 0.596 B for Qwen3-0.6B.
TEST(Definitions, CountParameters) {
  const auto count = [](const char* name) {
    const Graph graph = built(config_file(name));
    int64_t total = 0;
    for (const Parameter& parameter : graph.parameters()) {
      int64_t elements = 1;
      for (int64_t size : parameter.shape) elements *= size;
      total += elements;
    }
    return total;
  };
  EXPECT_EQ(count("configs/qwen2.5-0.5b/config.json"), 494032768);
  EXPECT_EQ(count("configs/qwen3-0.6b/config.json"), 596049920);
}

TEST(Definitions, GiveBiasesToTheFamilyThatHasThem) {
  const Graph qwen2 = built(parsed(small_config("qwen2")));
  EXPECT_GE(qwen2.find_parameter("layers.0.self_attn.q_proj.bias").index, 0);
  EXPECT_GE(qwen2.find_parameter("layers.3.self_attn.v_proj.bias").index, 0);
  EXPECT_LT(qwen2.find_parameter("layers.0.self_attn.o_proj.bias").index, 0);
  EXPECT_LT(qwen2.find_parameter("layers.0.mlp.up_proj.bias").index, 0);

  Json json = small_config("llama");
  EXPECT_LT(built(parsed(json)).find_parameter("layers.0.self_attn.q_proj.bias").index, 0);
  json["attention_bias"] = true;
  json["mlp_bias"] = true;
  const Graph llama = built(parsed(json));
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    EXPECT_GE(llama.find_parameter("layers.1." + std::string(name) + ".bias").index, 0) << name;
  }
}

TEST(Definitions, NormHeadsInQwen3Only) {
  EXPECT_GE(built(parsed(small_config("qwen3"))).find_parameter("layers.0.self_attn.q_norm.weight").index, 0);
  EXPECT_LT(built(parsed(small_config("qwen2"))).find_parameter("layers.0.self_attn.q_norm.weight").index, 0);
}

TEST(Definitions, CentreTheNormsOfQwen35ButTheGatedOne) {
  const Graph graph = built(parsed(small_config("qwen3_5_text")));
  int plain = 0;
  for (const Node& node : graph.nodes()) {
    if (const auto* norm = std::get_if<op::RmsNorm>(&node.op)) {
      EXPECT_EQ(norm->weight_offset, 1.0F) << node.name;
      EXPECT_FLOAT_EQ(norm->epsilon, 1e-5F);
    }
    if (std::holds_alternative<op::GatedRmsNorm>(node.op)) {
      ++plain;
      EXPECT_THAT(node.name, HasSubstr("linear_attn.norm"));
    }
  }
  EXPECT_EQ(plain, 3);
  const Graph qwen3 = built(parsed(small_config("qwen3")));
  EXPECT_EQ(std::get<op::RmsNorm>(find_node(qwen3, "norm")->op).weight_offset, 0.0F);
}

TEST(Definitions, SplitTheGateHeadByHead) {
  const Graph graph = built(parsed(small_config("qwen3_5_text")));
  const Node* query = find_node(graph, "layers.3.self_attn.query");
  const Node* gate = find_node(graph, "layers.3.self_attn.gate_heads");
  ASSERT_NE(query, nullptr);
  ASSERT_NE(gate, nullptr);
  EXPECT_EQ(to_string(graph.value(query->inputs[0]).shape), "[T, 4, 64]");
  EXPECT_EQ(std::get<op::Slice>(query->op).begin, 0);
  EXPECT_EQ(std::get<op::Slice>(query->op).end, 32);
  EXPECT_EQ(std::get<op::Slice>(gate->op).begin, 32);
  EXPECT_EQ(std::get<op::Slice>(gate->op).end, 64);
}

// Same shapes throughout, so that only the names tell beta's input from the decay's.
TEST(Definitions, FeedTheDeltaNetInItsOrder) {
  const Graph graph = built(parsed(small_config("qwen3_5_text")));
  const Node* rule = find_node(graph, "layers.0.linear_attn.delta_net");
  ASSERT_NE(rule, nullptr);
  const auto input = [&](size_t i) { return graph.value(rule->inputs.at(i)).name; };
  EXPECT_EQ(input(0), "layers.0.linear_attn.conv1d");
  EXPECT_EQ(input(1), "layers.0.linear_attn.in_proj_b");
  EXPECT_EQ(input(2), "layers.0.linear_attn.in_proj_a");
  EXPECT_EQ(graph.parameter(rule->parameters.at(0)).name, "layers.0.linear_attn.A_log");
  EXPECT_EQ(graph.parameter(rule->parameters.at(1)).name, "layers.0.linear_attn.dt_bias");
  const auto& sizes = std::get<op::GatedDeltaNet>(rule->op);
  EXPECT_EQ(sizes.key_heads, 2);
  EXPECT_EQ(sizes.value_heads, 4);
  EXPECT_FLOAT_EQ(sizes.norm_epsilon, 1e-6F);
}

TEST(Definitions, NameStatesByWhatTheyHold) {
  const Graph graph = built(parsed(small_config("qwen3_5_text")));
  ASSERT_EQ(graph.states().size(), 7U);
  EXPECT_EQ(graph.states()[0].name, "layers.0.linear_attn.conv_state");
  EXPECT_EQ(graph.states()[0].kind, State::Kind::convolution);
  EXPECT_THAT(graph.states()[0].dims, ElementsAre(2 * 2 * 16 + 4 * 8, 3));
  EXPECT_EQ(graph.states()[1].name, "layers.0.linear_attn.recurrent_state");
  EXPECT_THAT(graph.states()[1].dims, ElementsAre(4, 16, 8));
  EXPECT_EQ(graph.states()[6].name, "layers.3.self_attn.cache");
  EXPECT_THAT(graph.states()[6].dims, ElementsAre(2, 32));
}

TEST(Definitions, GiveEveryParameterItsRole) {
  EXPECT_THAT(
      count_roles(built(parsed(small_config("qwen3_5_text")))),
      ::testing::UnorderedElementsAre(
          ::testing::Pair(ParameterRole::embedding, 1), ::testing::Pair(ParameterRole::lm_head, 1),
          // 3 delta nets: qkv, z, out; 1 attention: q, k, v, o; 4 MLPs of 3
          ::testing::Pair(ParameterRole::linear, 3 * 3 + 4 + 4 * 3),
          ::testing::Pair(ParameterRole::sensitive, 3 * 2),
          // per layer 2 norms; delta net: conv1d, A_log, dt_bias, norm; attention: 2 norms; final norm
          ::testing::Pair(ParameterRole::vector, 4 * 2 + 3 * 4 + 2 + 1)));
  const Graph moe = built(parsed(small_config("qwen3_moe")));
  EXPECT_EQ(moe.parameter(moe.find_parameter("layers.0.mlp.gate.weight")).role, ParameterRole::sensitive);
  EXPECT_EQ(moe.parameter(moe.find_parameter("layers.0.mlp.experts.3.down_proj.weight")).role,
            ParameterRole::linear);
}

TEST(Definitions, ShareTheTableOfTiedHeads) {
  Json json = small_config("qwen2");
  const Graph untied = built(parsed(json));
  json["tie_word_embeddings"] = true;
  const Graph tied = built(parsed(json));
  EXPECT_EQ(untied.parameters().size(), tied.parameters().size() + 1);
  EXPECT_GE(untied.find_parameter("lm_head.weight").index, 0);
  EXPECT_LT(tied.find_parameter("lm_head.weight").index, 0);
  EXPECT_EQ(find_node(tied, "lm_head")->parameters[0], find_node(tied, "embed_tokens")->parameters[0]);
  EXPECT_EQ(tied.parameter(tied.find_parameter("embed_tokens.weight")).role, ParameterRole::embedding);
}

TEST(Definitions, MakeLayersSparseByStepAndList) {
  Json json = small_config("qwen3_moe");
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {3};
  const Graph graph = built(parsed(json));
  // Of 0 … 3 the step picks 1 and 3, and the list takes 3 away.
  for (int layer = 0; layer < 4; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".mlp.";
    EXPECT_EQ(find_node(graph, prefix + "experts") != nullptr, layer == 1) << layer;
    EXPECT_EQ(find_node(graph, prefix + "down_proj") != nullptr, layer != 1) << layer;
  }
  const Node* node = find_node(graph, "layers.1.mlp.experts");
  ASSERT_NE(node, nullptr);
  const auto& experts = std::get<op::MixtureOfExperts>(node->op);
  EXPECT_EQ(experts.experts, 4);
  EXPECT_EQ(experts.top_k, 2);
  EXPECT_EQ(experts.intermediate, 48);
  EXPECT_TRUE(experts.normalize);
}

TEST(Definitions, ScaleByTheRootOfHeadDim) {
  const Graph graph = built(config_file("configs/qwen3-0.6b/config.json"));
  const auto& attention = std::get<op::Attention>(find_node(graph, "layers.27.self_attn.attention")->op);
  EXPECT_EQ(attention.query_heads, 16);
  EXPECT_EQ(attention.key_value_heads, 8);
  EXPECT_FLOAT_EQ(attention.scale, 0.0883883476F);  // 128^-0.5
}

TEST(Definitions, BuildALargeMixtureInReasonableTime) {
  Json json = small_config("qwen3_moe");
  json["num_hidden_layers"] = 94;
  json["num_experts"] = 128;
  json["num_experts_per_tok"] = 8;
  const Graph graph = built(parsed(json));
  EXPECT_EQ(graph.parameters().size(), 94U * (128 * 3 + 1 + 8) + 3);
}

}  // namespace
}  // namespace hexlm
