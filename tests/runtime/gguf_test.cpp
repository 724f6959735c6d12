#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "logit_pair.hpp"
#include "quantization/checkpoint_edit.hpp"
#include "quantization/export.hpp"
#include "quantization/gguf_source.hpp"
#include "quantization/gguf_writer.hpp"
#include "quantization/quantizer.hpp"
#include "quantization/source_model.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A GGUF file and its twin, a float32 checkpoint with the same values in Hugging Face's names and order.
class GgufPair {
 public:
  GgufPair(std::string architecture, GgufBlockType type)
      : architecture_(std::move(architecture)), type_(std::move(type)) {}

  void write(const std::string& gguf, const std::string& twin) {
    if (architecture_ == "qwen35") {
      delta_net_model();
    } else {
      dense_model();
    }
    file_.write(gguf);
    std::filesystem::create_directories(twin);
    write_test_file(twin + "/config.json", config_.dump());
    std::vector<TensorPlan> plan;
    for (const auto& [name, shape, values] : tensors_) plan.push_back({name, DType::f32, shape});
    auto writer = SafetensorsWriter::create(twin + "/model.safetensors", plan, {}, 1);
    ASSERT_TRUE(writer);
    for (const auto& [name, shape, values] : tensors_)
      ASSERT_TRUE(writer->write(std::as_bytes(std::span(values))));
    ASSERT_TRUE(writer->commit());
  }
  GgufWriter& file() { return file_; }

 private:
  struct Twin {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  /// Row r of the twin is row order(r) of the file.
  using Order = std::function<int64_t(int64_t)>;

  void matrix(const std::string& gguf, const std::string& name, int64_t rows, int64_t columns,
              const Order& row = {}, const Order& column = {}) {
    std::vector<float> stored;
    file_.add(random_blocks(gguf, {rows, columns}, type_, generator_, stored));
    std::vector<float> values(stored.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        values[static_cast<size_t>(r * columns + c)] =
            stored[static_cast<size_t>((row ? row(r) : r) * columns + (column ? column(c) : c))];
      }
    }
    tensors_.push_back({name, {rows, columns}, std::move(values)});
  }

  /// `stored_of` gives what the file holds for a value.
  void vector(const std::string& gguf, const std::string& name, int64_t size, float centre,
              const std::function<float(float)>& stored_of = {}, const Order& order = {}) {
    std::vector<float> values(static_cast<size_t>(size));
    // Sixteenths: adding 1 and taking it away again is exact.
    for (float& value : values)
      value = centre + static_cast<float>(static_cast<int>(generator_() % 9) - 4) / 64;
    std::vector<float> stored(values.size());
    for (int64_t i = 0; i < size; ++i) {
      const float value = values[static_cast<size_t>(i)];
      stored[static_cast<size_t>(order ? order(i) : i)] = stored_of ? stored_of(value) : value;
    }
    file_.add(float_gguf(gguf, {size}, stored));
    tensors_.push_back({name, {size}, std::move(values)});
  }

  void common(const std::string& type, const char* name) {
    const auto set = [&](const char* key, uint32_t value) { file_.add(architecture_ + "." + key, value); };
    file_.add("general.architecture", architecture_);
    set("block_count", 2);
    set("context_length", 512);
    set("embedding_length", 256);
    set("feed_forward_length", 512);
    set("attention.head_count", 4);
    set("attention.head_count_kv", 2);
    set("attention.key_length", 64);
    file_.add(architecture_ + ".attention.layer_norm_rms_epsilon", 1e-5F);
    file_.add(architecture_ + ".rope.freq_base", 500000.0F);
    config_ = {{"model_type", type},
               {"architectures", {name}},
               {"hidden_size", 256},
               {"intermediate_size", 512},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"head_dim", 64},
               {"vocab_size", 256},
               {"rms_norm_eps", 1e-5},
               {"tie_word_embeddings", architecture_ == "qwen3"},
               {"rope_theta", 500000.0},
               {"max_position_embeddings", 512}};
    matrix("token_embd.weight", "model.embed_tokens.weight", 256, 256);
    if (architecture_ != "qwen3") matrix("output.weight", "lm_head.weight", 256, 256);
  }

  void feed_forward(int layer) {
    const std::string g = fmt::format("blk.{}.", layer);
    const std::string h = fmt::format("model.layers.{}.", layer);
    matrix(g + "ffn_gate.weight", h + "mlp.gate_proj.weight", 512, 256);
    matrix(g + "ffn_up.weight", h + "mlp.up_proj.weight", 512, 256);
    matrix(g + "ffn_down.weight", h + "mlp.down_proj.weight", 256, 512);
  }

  void dense_model() {
    const bool llama = architecture_ == "llama";
    common(architecture_, llama ? "LlamaForCausalLM" : "QwenForCausalLM");
    // Hugging Face's [half, pair] within a head is the file's [pair, half].
    const Order pairs = [](int64_t r) { return r / 64 * 64 + r % 32 * 2 + r % 64 / 32; };
    const Order order = llama ? pairs : Order();
    for (int layer = 0; layer < 2; ++layer) {
      const std::string g = fmt::format("blk.{}.", layer);
      const std::string h = fmt::format("model.layers.{}.", layer);
      vector(g + "attn_norm.weight", h + "input_layernorm.weight", 256, 1);
      vector(g + "ffn_norm.weight", h + "post_attention_layernorm.weight", 256, 1);
      matrix(g + "attn_q.weight", h + "self_attn.q_proj.weight", 256, 256, order);
      matrix(g + "attn_k.weight", h + "self_attn.k_proj.weight", 128, 256, order);
      matrix(g + "attn_v.weight", h + "self_attn.v_proj.weight", 128, 256);
      matrix(g + "attn_output.weight", h + "self_attn.o_proj.weight", 256, 256);
      if (architecture_ == "qwen2") {
        vector(g + "attn_q.bias", h + "self_attn.q_proj.bias", 256, 0);
        vector(g + "attn_k.bias", h + "self_attn.k_proj.bias", 128, 0);
        vector(g + "attn_v.bias", h + "self_attn.v_proj.bias", 128, 0);
      }
      if (architecture_ == "qwen3") {
        vector(g + "attn_q_norm.weight", h + "self_attn.q_norm.weight", 64, 1);
        vector(g + "attn_k_norm.weight", h + "self_attn.k_norm.weight", 64, 1);
      }
      feed_forward(layer);
    }
    vector("output_norm.weight", "model.norm.weight", 256, 1);
  }

  /// Two key heads, four value heads of 64: Hugging Face's head k·2 + j is the file's j·2 + k.
  void delta_net_model() {
    common("qwen3_5_text", "Qwen3_5ForCausalLM");
    const auto set = [&](const char* key, uint32_t value) { file_.add("qwen35." + std::string(key), value); };
    set("ssm.conv_kernel", 4);
    set("ssm.state_size", 64);
    set("ssm.group_count", 2);
    set("ssm.time_step_rank", 4);
    set("ssm.inner_size", 256);
    set("full_attention_interval", 2);
    set("rope.dimension_count", 16);
    file_.add("qwen35.rope.dimension_sections", std::vector<int32_t>{3, 3, 2, 0});
    config_.update({{"linear_conv_kernel_dim", 4},
                    {"linear_key_head_dim", 64},
                    {"linear_num_key_heads", 2},
                    {"linear_num_value_heads", 4},
                    {"linear_value_head_dim", 64},
                    {"partial_rotary_factor", 0.25},
                    {"layer_types", {"linear_attention", "full_attention"}},
                    {"rope_parameters",
                     {{"rope_type", "default"},
                      {"rope_theta", 500000.0},
                      {"partial_rotary_factor", 0.25},
                      {"mrope_section", {3, 3, 2}}}}});
    const auto head = [](int64_t h) { return h % 2 * 2 + h / 2; };
    const Order blocks = [=](int64_t i) { return head(i / 64) * 64 + i % 64; };
    const Order qkv = [=](int64_t i) { return i < 256 ? i : 256 + blocks(i - 256); };
    const auto plus_one = [](float value) { return value + 1; };
    const std::string l = "model.layers.0.linear_attn.";
    matrix("blk.0.attn_qkv.weight", l + "in_proj_qkv.weight", 512, 256, qkv);
    matrix("blk.0.attn_gate.weight", l + "in_proj_z.weight", 256, 256, blocks);
    matrix("blk.0.ssm_alpha.weight", l + "in_proj_a.weight", 4, 256, head);
    matrix("blk.0.ssm_beta.weight", l + "in_proj_b.weight", 4, 256, head);
    vector("blk.0.ssm_a", l + "A_log", 4, 1, [](float value) { return -std::exp(value); }, head);
    vector("blk.0.ssm_dt.bias", l + "dt_bias", 4, 0, {}, head);
    vector("blk.0.ssm_norm.weight", l + "norm.weight", 64, 1);
    matrix("blk.0.ssm_out.weight", l + "out_proj.weight", 256, 256, {}, blocks);
    std::vector<float> taps(512 * 4);
    std::vector<float> stored(taps.size());
    for (size_t i = 0; i < taps.size(); ++i)
      taps[i] = static_cast<float>(static_cast<int>(generator_() % 9) - 4) / 8;
    for (size_t i = 0; i < taps.size(); ++i) {
      stored[static_cast<size_t>(qkv(static_cast<int64_t>(i) / 4) * 4) + i % 4] = taps[i];
    }
    file_.add(float_gguf("blk.0.ssm_conv1d.weight", {512, 4}, stored));
    tensors_.push_back({l + "conv1d.weight", {512, 1, 4}, taps});
    const std::string a = "model.layers.1.self_attn.";
    matrix("blk.1.attn_q.weight", a + "q_proj.weight", 512, 256);
    matrix("blk.1.attn_k.weight", a + "k_proj.weight", 128, 256);
    matrix("blk.1.attn_v.weight", a + "v_proj.weight", 128, 256);
    matrix("blk.1.attn_output.weight", a + "o_proj.weight", 256, 256);
    vector("blk.1.attn_q_norm.weight", a + "q_norm.weight", 64, 0, plus_one);
    vector("blk.1.attn_k_norm.weight", a + "k_norm.weight", 64, 0, plus_one);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string g = fmt::format("blk.{}.", layer);
      const std::string h = fmt::format("model.layers.{}.", layer);
      vector(g + "attn_norm.weight", h + "input_layernorm.weight", 256, 0, plus_one);
      vector(g + "post_attention_norm.weight", h + "post_attention_layernorm.weight", 256, 0, plus_one);
      feed_forward(layer);
    }
    vector("output_norm.weight", "model.norm.weight", 256, 0, plus_one);
  }

  std::string architecture_;
  GgufBlockType type_;
  std::mt19937 generator_{3};
  GgufWriter file_;
  Json config_;
  std::vector<Twin> tensors_;
};

struct GgufCase {
  std::string architecture;
  GgufBlockType type;
};

std::vector<GgufCase> gguf_cases() {
  std::vector<GgufCase> cases;
  for (const char* architecture : {"llama", "qwen2", "qwen3", "qwen35"}) {
    for (GgufBlockType& type : gguf_block_types()) cases.push_back({architecture, std::move(type)});
  }
  return cases;
}

class Gguf : public testing::TestWithParam<GgufCase> {};

TEST_P(Gguf, IsItsFloatTwinInEveryWeightAndInTheLogits) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.gguf");
  GgufPair(GetParam().architecture, GetParam().type).write(path, folder.file("twin"));
  const auto model = open_source_model(path, {});
  ASSERT_TRUE(model) << model.error().message;
  const auto twin = open_source_model(folder.file("twin"), {});
  ASSERT_TRUE(twin) << twin.error().message;
  EXPECT_EQ(model->weights->names(), twin->weights->names());
  for (const std::string& name : twin->weights->names()) {
    const auto got = model->weights->find(name);
    const auto expected = twin->weights->find(name);
    ASSERT_TRUE(got) << got.error().message;
    ASSERT_EQ(got->shape, expected->shape) << name;
    const std::vector<float> values = decode_rows(*got, 0, got->rows());
    const std::vector<float> wanted = decode_rows(*expected, 0, expected->rows());
    if (name.ends_with("A_log")) {
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-6);
    } else {
      EXPECT_TRUE(values == wanted) << name;
    }
  }
  const std::vector<float> logits = fixed_logits(folder.file("twin"));
  EXPECT_LE(relative_norm(fixed_logits(path), logits), 1e-5);

  ExportOptions options;
  options.checkpoint = path;
  options.package = folder.file("package");
  options.linear = options.embedding = options.lm_head = parse_codec("f16").value_or(Codec{});
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto exported = export_package(options, *plan, nullptr);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_LE(relative_norm(fixed_logits(options.package), logits), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Types, Gguf, testing::ValuesIn(gguf_cases()), [](const auto& info) {
  return info.param.architecture + "_" + info.param.type.name;
});

/// The trained tiny model's tokenizer as llama.cpp's converter writes it.
void add_tokenizer(GgufWriter& file) {
  const auto json = read_json(test_data("models/tiny-vl/tokenizer.json"));
  ASSERT_TRUE(json);
  std::map<int, std::pair<std::string, int>> tokens;
  for (const auto& [text, id] : (*json)["model"]["vocab"].items()) tokens[id.get<int>()] = {text, 1};
  for (const Json& added : (*json)["added_tokens"]) {
    tokens[added["id"].get<int>()] = {added["content"].get<std::string>(),
                                      added["special"].get<bool>() ? 3 : 4};
  }
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  for (const auto& [id, token] : tokens) {
    EXPECT_EQ(id, static_cast<int>(texts.size()));
    texts.push_back(token.first);
    types.push_back(token.second);
  }
  std::vector<std::string> merges;
  for (const Json& merge : (*json)["model"]["merges"]) {
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  texts.emplace_back("[PAD6144]");
  types.push_back(5);
  file.add("tokenizer.ggml.model", std::string("gpt2"));
  file.add("tokenizer.ggml.pre", std::string("qwen35"));
  file.add("tokenizer.ggml.tokens", texts);
  file.add("tokenizer.ggml.token_type", types);
  file.add("tokenizer.ggml.merges", merges);
  file.add("tokenizer.ggml.eos_token_id", uint32_t{6137});
  file.add("tokenizer.chat_template", read_test_file(test_data("models/tiny-vl/chat_template.jinja")));
}

TEST(GgufText, TokenizerAndTemplateComeFromTheMetadata) {
  GgufWriter file;
  add_tokenizer(file);
  const TemporaryFolder folder;
  file.write(folder.file("words.gguf"));
  const auto opened = GgufFile::open(folder.file("words.gguf"));
  ASSERT_TRUE(opened) << opened.error().message;
  const auto companions = gguf_companions(**opened);
  ASSERT_TRUE(companions) << companions.error().message;
  const auto tokenizer = Tokenizer::parse(companions->files.at("tokenizer.json"), "words.gguf");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto original = Tokenizer::load(test_data("models/tiny-vl/tokenizer.json"));
  ASSERT_TRUE(original);
  EXPECT_EQ(tokenizer->size(), original->size());
  for (const std::string text :
       {"Hello world, it's 2026!", "  two  spaces\n\n\ttab", "你好，世界。今天天气很好",
        "<|im_start|>user\nWhat?<|im_end|>\n", "naïve café ÅÅ", ""}) {
    const auto got = tokenizer->encode(text);
    const auto expected = original->encode(text);
    ASSERT_TRUE(got && expected);
    EXPECT_EQ(*got, *expected) << text;
  }
  EXPECT_EQ(companions->files.at("chat_template.jinja"),
            read_test_file(test_data("models/tiny-vl/chat_template.jinja")));
  EXPECT_EQ((*parse_json(companions->files.at("generation_config.json"), "x"))["eos_token_id"], 6137);
  EXPECT_EQ((*parse_json(companions->files.at("tokenizer_config.json"), "x"))["eos_token"],
            original->decode(std::vector<int32_t>{6137}));
}

class DamagedGguf : public testing::Test {
 protected:
  Error error_of(const std::string& bytes) {
    const TemporaryFolder folder;
    write_test_file(folder.file("model.gguf"), bytes);
    const auto model = Model::open(folder.file("model.gguf"), {1, true, {}});
    EXPECT_FALSE(model);
    if (model) return {};
    EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
    return model.error();
  }
  std::string good() {
    const TemporaryFolder folder;
    GgufPair pair("qwen3", gguf_block_types()[0]);
    pair.write(folder.file("model.gguf"), folder.file("twin"));
    return pair.file().bytes();
  }
};

TEST_F(DamagedGguf, EveryTruncationIsAnError) {
  const std::string bytes = good();
  for (size_t size = 0; size < 4000; size += 37) {
    EXPECT_EQ(error_of(bytes.substr(0, size)).code, ErrorCode::bad_input) << size;
  }
  const Error error = error_of(bytes.substr(0, bytes.size() - 64));
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, AllOf(HasSubstr("model.gguf"), HasSubstr("tensor")));
}

TEST_F(DamagedGguf, MagicVersionTypesAndArchitecturesAreChecked) {
  std::string bytes = good();
  bytes[0] = 'X';
  EXPECT_EQ(error_of(bytes).code, ErrorCode::bad_input);
  bytes = good();
  bytes[4] = 1;
  EXPECT_EQ(error_of(bytes).code, ErrorCode::unsupported);
  GgufWriter other;
  other.add("general.architecture", std::string("gemma3"));
  EXPECT_EQ(error_of(other.bytes()).code, ErrorCode::bad_input) << "sizes come first";
  GgufWriter odd;
  odd.add({"x", 23, {4}, std::vector<uint8_t>(16)});
  const Error error = error_of(odd.bytes());
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, AllOf(HasSubstr("'x'"), HasSubstr("23")));
}

TEST_F(DamagedGguf, ScalesThatAreNotFiniteAreNamed) {
  std::string bytes = good();
  // The last tensor is a norm; the 400 kB before it are blocks, of which one gets an infinite scale.
  const size_t at = (bytes.size() - 1024 - 18 * 1000) / 32 * 32;
  for (size_t i = 0; i < 36; i += 2) {
    bytes[at + i] = 0x00;
    bytes[at + i + 1] = 0x7c;
  }
  const Error error = error_of(bytes);
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, AllOf(HasSubstr("blk.1.ffn_down.weight"), HasSubstr("inf")));
}

}  // namespace
}  // namespace hexlm
