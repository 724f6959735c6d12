#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint_packers.hpp"
#include "support/test_data.hpp"

namespace hexlm {

/// One format: how config.json says it and how a matrix is packed.
struct ImportCase {
  std::string name;
  Json config;
  PackingOptions options;
  std::function<std::vector<EditableTensor>(const std::string&, const PackedMatrixValues&)> pack;
  std::string codec;  ///< that the importer must choose
};

inline Json compressed_config(int bits, bool symmetric, const std::string& strategy, int group) {
  const Json weights = {{"num_bits", bits},
                        {"type", "int"},
                        {"symmetric", symmetric},
                        {"strategy", strategy},
                        {"group_size", group}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
          {"ignore", {"lm_head"}}};
}

inline Json gptq_config(int bits, int group) {
  return {
      {"quant_method", "gptq"}, {"bits", bits}, {"group_size", group}, {"desc_act", false}, {"sym", true}};
}

inline Json with(Json config, const char* key, Json value) {
  config[key] = std::move(value);
  return config;
}

inline std::vector<ImportCase> import_cases() {
  const auto v1 = [](const std::string& stem, const PackedMatrixValues& m) { return pack_gptq(stem, m, 1); };
  const auto v2 = [](const std::string& stem, const PackedMatrixValues& m) { return pack_gptq(stem, m, 0); };
  const auto packed = [](bool symmetric, bool order) {
    return [=](const std::string& stem, const PackedMatrixValues& m) {
      return pack_compressed(stem, m, symmetric, order);
    };
  };
  const Json awq = {
      {"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"version", "GEMM"}, {"zero_point", true}};
  return {
      {"gptq_w4g32", gptq_config(4, 32), {4, 32, true}, v1, "w4g32"},
      {"gptq_w8_channel", gptq_config(8, -1), {8, -1, true}, v1, "w8"},
      {"gptq_w3g32_asymmetric", gptq_config(3, 32), {3, 32, false}, v1, "w3g32a:f32"},
      {"gptq_w2g64", gptq_config(2, 64), {2, 64, true}, v1, "w2g64"},
      {"gptq_v2_asymmetric",
       with(gptq_config(4, 32), "checkpoint_format", "gptq_v2"),
       {4, 32, false},
       v2,
       "w4g32a:f32"},
      {"gptq_act_order",
       with(gptq_config(4, 32), "desc_act", true),
       {4, 32, true, DType::f16, true},
       v1,
       "f32"},
      {"gptq_bf16_scales", gptq_config(4, 32), {4, 32, true, DType::bf16}, v1, "w4g32"},
      {"awq", awq, {4, 64, false}, pack_awq, "w4g64a:f32"},
      {"compressed_w4g32",
       compressed_config(4, true, "group", 32),
       {4, 32, true, DType::bf16},
       packed(true, false),
       "w4g32"},
      {"compressed_w4_asymmetric",
       compressed_config(4, false, "group", 64),
       {4, 64, false, DType::bf16},
       packed(false, false),
       "w4g64a:f32"},
      {"compressed_w8_channel",
       compressed_config(8, true, "channel", 0),
       {8, -1, true},
       packed(true, false),
       "w8"},
      {"compressed_w3g32",
       compressed_config(3, false, "group", 32),
       {3, 32, false},
       packed(false, false),
       "w3g32a:f32"},
      {"compressed_act_order",
       compressed_config(4, true, "group", 32),
       {4, 32, true, DType::f16, true},
       packed(true, true),
       "f32"},
  };
}

inline std::string float_base() { return test_data("reference/qwen2_tied/checkpoint"); }

/// Writes the base with every decoder matrix replaced by random packed weights to `packed`, and their float32
/// twins to `twin`.
inline void write_pair(const ImportCase& format, const std::string& packed, const std::string& twin) {
  std::map<std::string, PackedMatrixValues> matrices;
  std::mt19937 generator(11);
  copy_checkpoint(float_base(), packed, [&](std::vector<EditableTensor>& tensors, Json& config) {
    config["quantization_config"] = format.config;
    std::vector<EditableTensor> all;
    for (EditableTensor& tensor : tensors) {
      if (!is_decoder_matrix(tensor)) {
        all.push_back(std::move(tensor));
        continue;
      }
      const auto matrix = random_matrix(tensor.shape[0], tensor.shape[1], format.options, generator);
      const std::string stem = tensor.name.substr(0, tensor.name.size() - 7);
      for (EditableTensor& part : format.pack(stem, matrix)) all.push_back(std::move(part));
      matrices.emplace(tensor.name, matrix);
    }
    tensors = std::move(all);
  });
  copy_checkpoint(float_base(), twin, [&](std::vector<EditableTensor>& tensors, Json&) {
    for (EditableTensor& tensor : tensors) {
      const auto found = matrices.find(tensor.name);
      if (found != matrices.end())
        tensor = float_tensor(tensor.name, tensor.shape, found->second.dequantized());
    }
  });
}

}  // namespace hexlm
