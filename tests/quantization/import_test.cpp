#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/package.hpp"
#include "import_cases.hpp"
#include "quantization/export.hpp"
#include "quantization/quantizer.hpp"
#include "quantization/source_model.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<float> all_values(const WeightSource& weights, const std::string& name) {
  const auto view = weights.find(name);
  EXPECT_TRUE(view) << view.error().message;
  return view ? decode_rows(*view, 0, view->rows()) : std::vector<float>();
}

/// Every parameter of `got` has the float values of `twin`, bit for bit.
void expect_equal_weights(const WeightSource& got, const SourceWeights& twin) {
  for (const std::string& name : twin.names()) {
    EXPECT_TRUE(all_values(got, name) == all_values(twin, name)) << name;
  }
}

class Import : public testing::TestWithParam<ImportCase> {};

TEST_P(Import, WeightsAreTheDequantizedOnesToTheLastBit) {
  const TemporaryFolder folder;
  write_pair(GetParam(), folder.file("packed"), folder.file("twin"));
  const auto imported = open_source_model(folder.file("packed"), {});
  ASSERT_TRUE(imported) << imported.error().message;
  const auto twin = open_source_model(folder.file("twin"), {});
  ASSERT_TRUE(twin);
  EXPECT_EQ(imported->weights->names(), twin->weights->names());
  expect_equal_weights(*imported->weights, *twin->weights);
  for (const auto& view : {imported->weights->find("layers.1.mlp.up_proj.weight"),
                           imported->weights->describe("layers.1.mlp.up_proj.weight")}) {
    ASSERT_TRUE(view);
    EXPECT_EQ(to_string(view->codec), GetParam().codec);
    EXPECT_EQ(view->shape, (std::vector<int64_t>{320, 128}));
  }
}

TEST_P(Import, PackagesHoldTheSameCodes) {
  const TemporaryFolder folder;
  write_pair(GetParam(), folder.file("packed"), folder.file("twin"));
  ExportOptions options;
  options.checkpoint = folder.file("packed");
  options.package = folder.file("package");
  options.linear = options.embedding = Codec{};
  options.threads = 2;
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto result = export_package(options, *plan, nullptr);
  ASSERT_TRUE(result) << result.error().message;
  const auto package = Package::open(options.package, true, 1);
  ASSERT_TRUE(package) << package.error().message;
  const auto twin = open_source_model(folder.file("twin"), {});
  ASSERT_TRUE(twin);
  expect_equal_weights(**package, *twin->weights);
  const auto view = (*package)->find("layers.0.self_attn.q_proj.weight");
  ASSERT_TRUE(view);
  EXPECT_EQ(to_string(view->codec), GetParam().codec);
  EXPECT_FALSE((*package)->manifest().configuration.contains("quantization_config"));
}

INSTANTIATE_TEST_SUITE_P(Formats, Import, testing::ValuesIn(import_cases()),
                         [](const auto& info) { return info.param.name; });

/// E4M3 codes with block scales.
void write_fp8(const std::string& packed, const std::string& twin, DType scale_type) {
  std::map<std::string, std::vector<float>> values;
  std::mt19937 generator(5);
  copy_checkpoint(float_base(), packed, [&](std::vector<EditableTensor>& tensors, Json& config) {
    config["quantization_config"] = {
        {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {48, 80}}};
    std::vector<EditableTensor> scales;
    for (EditableTensor& tensor : tensors) {
      if (!is_decoder_matrix(tensor)) continue;
      const auto rows = static_cast<size_t>(tensor.shape[0]);
      const auto columns = static_cast<size_t>(tensor.shape[1]);
      const size_t blocks = (columns + 79) / 80;
      std::vector<float> scale((rows + 47) / 48 * blocks);
      for (float& each : scale) {
        each = bfloat16_to_float(
            float_to_bfloat16(std::uniform_real_distribution<float>(1e-4F, 3e-4F)(generator)));
      }
      std::vector<float>& out = values[tensor.name];
      tensor.dtype = DType::f8_e4m3;
      tensor.bytes.resize(rows * columns);
      for (size_t i = 0; i < rows * columns; ++i) {
        auto code = static_cast<uint8_t>(generator() & 255);
        if ((code & 0x7f) == 0x7f) code = 0;
        tensor.bytes[i] = static_cast<std::byte>(code);
        // sign · 2^(e−7) · (1 + m/8), subnormal below e = 1 (IEEE-like, bias 7)
        const int e = code >> 3 & 15;
        const double fraction = (code & 7) / 8.0;
        double value = e == 0 ? std::pow(2, -6) * fraction : std::pow(2, e - 7) * (1 + fraction);
        if ((code & 128) != 0) value = -value;
        out.push_back(static_cast<float>(value * scale[i / columns / 48 * blocks + i % columns / 80]));
      }
      EditableTensor part =
          float_tensor(tensor.name + "_scale_inv",
                       {static_cast<int64_t>((rows + 47) / 48), static_cast<int64_t>(blocks)}, scale);
      if (scale_type == DType::bf16) {
        part.dtype = DType::bf16;
        part.bytes.resize(scale.size() * 2);
        for (size_t i = 0; i < scale.size(); ++i) {
          const uint16_t bits = float_to_bfloat16(scale[i]);
          std::memcpy(part.bytes.data() + 2 * i, &bits, 2);
        }
      }
      scales.push_back(std::move(part));
    }
    for (EditableTensor& tensor : scales) tensors.push_back(std::move(tensor));
  });
  copy_checkpoint(float_base(), twin, [&](std::vector<EditableTensor>& tensors, Json&) {
    for (EditableTensor& tensor : tensors) {
      const auto found = values.find(tensor.name);
      if (found != values.end()) tensor = float_tensor(tensor.name, tensor.shape, found->second);
    }
  });
}

TEST(ImportFp8, BlocksAreDequantizedToTheLastBitAndThenExportedAsFloats) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const TemporaryFolder folder;
    write_fp8(folder.file("packed"), folder.file("twin"), type);
    const auto imported = open_source_model(folder.file("packed"), {});
    ASSERT_TRUE(imported) << imported.error().message;
    const auto twin = open_source_model(folder.file("twin"), {});
    ASSERT_TRUE(twin);
    expect_equal_weights(*imported->weights, *twin->weights);
    std::vector<std::string> weights;
    for (const char* from : {"packed", "twin"}) {
      ExportOptions options;
      options.checkpoint = folder.file(from);
      options.package = folder.file(std::string(from) + "-package");
      const auto plan = plan_export(options);
      ASSERT_TRUE(plan) << plan.error().message;
      ASSERT_TRUE(export_package(options, *plan, nullptr));
      weights.push_back(read_test_file(options.package + "/weights.safetensors"));
    }
    EXPECT_TRUE(weights[0] == weights[1]);
  }
}

class DamagedImport : public testing::Test {
 protected:
  /// The error of opening the case `name` after `edit`.
  Error error_after(const std::string& name,
                    const std::function<void(std::vector<EditableTensor>&, Json&)>& edit) {
    for (const ImportCase& each : import_cases()) {
      if (each.name != name) continue;
      const TemporaryFolder folder;
      write_pair(each, folder.file("packed"), folder.file("twin"));
      copy_checkpoint(folder.file("packed"), folder.file("damaged"), edit);
      const auto model = open_source_model(folder.file("damaged"), {});
      EXPECT_FALSE(model) << "was not refused";
      return model ? Error{} : model.error();
    }
    ADD_FAILURE() << name;
    return {};
  }
};

const std::string stem = "model.layers.1.mlp.up_proj";

TEST_F(DamagedImport, PartsMustFitTogether) {
  struct Damage {
    const char* format;
    std::string part;
    std::function<void(EditableTensor&)> edit;
  };
  const auto drop_row = [](EditableTensor& tensor) {
    const size_t row = tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
    tensor.shape[0] -= 1;
    tensor.bytes.resize(tensor.bytes.size() - row);
  };
  const auto infinite = [](EditableTensor& tensor) {
    const uint16_t bits = 0x7c00;
    std::memcpy(tensor.bytes.data() + 4, &bits, 2);
  };
  const auto wrong_group = [](EditableTensor& tensor) { tensor.bytes[8] = std::byte{4}; };
  const auto as_floats = [](EditableTensor& tensor) { tensor.dtype = DType::f32; };
  for (const Damage& each :
       {Damage{"gptq_w4g32", ".qweight", drop_row}, Damage{"gptq_w4g32", ".qzeros", drop_row},
        Damage{"gptq_w4g32", ".scales", drop_row}, Damage{"gptq_w4g32", ".scales", infinite},
        Damage{"gptq_w4g32", ".g_idx", wrong_group}, Damage{"gptq_w4g32", ".qweight", as_floats},
        Damage{"awq", ".qweight", drop_row}, Damage{"awq", ".qzeros", drop_row},
        Damage{"compressed_w4g32", ".weight_packed", drop_row},
        Damage{"compressed_w4g32", ".weight_scale", drop_row},
        Damage{"compressed_w4_asymmetric", ".weight_zero_point", drop_row}}) {
    const Error error = error_after(each.format, [&](std::vector<EditableTensor>& tensors, Json&) {
      each.edit(find_tensor(tensors, stem + each.part));
    });
    EXPECT_EQ(error.code, ErrorCode::bad_input) << each.format << each.part;
    EXPECT_THAT(error.message, AllOf(HasSubstr(stem), HasSubstr("model.safetensors")))
        << each.format << each.part;
    EXPECT_EQ(error.message.find('\n'), std::string::npos);
  }
}

TEST_F(DamagedImport, MissingPartsAreNamed) {
  for (const char* part : {".qweight", ".qzeros", ".scales"}) {
    const Error error = error_after("gptq_w4g32", [&](std::vector<EditableTensor>& tensors, Json&) {
      std::erase_if(tensors, [&](const EditableTensor& tensor) { return tensor.name == stem + part; });
    });
    EXPECT_EQ(error.code, ErrorCode::bad_input) << part;
    EXPECT_THAT(error.message, HasSubstr("layers.1.mlp.up_proj")) << part;
  }
}

TEST_F(DamagedImport, OtherMethodsAndLayoutsAreRefused) {
  const std::vector<std::pair<Json, ErrorCode>> configs = {
      {{{"quant_method", "bitsandbytes"}}, ErrorCode::unsupported},
      {{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"version", "gemv"}},
       ErrorCode::unsupported},
      {with(gptq_config(4, 32), "checkpoint_format", "marlin"), ErrorCode::unsupported},
      {gptq_config(9, 32), ErrorCode::bad_input},
      {gptq_config(4, 0), ErrorCode::bad_input},
      {with(compressed_config(4, true, "group", 32), "format", "nvfp4-pack-quantized"),
       ErrorCode::unsupported},
      {{{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}}, ErrorCode::bad_input},
      {Json::array(), ErrorCode::bad_input},
  };
  for (const auto& [config, code] : configs) {
    const Error error =
        error_after("gptq_w4g32", [&, value = config](std::vector<EditableTensor>&, Json& json) {
          json["quantization_config"] = value;
        });
    EXPECT_EQ(error.code, code) << config.dump() << error.message;
    EXPECT_THAT(error.message, HasSubstr("quantization_config"));
  }
}

TEST(ImportPlan, CodesAreKeptByEveryMethodAndRecipe) {
  const TemporaryFolder folder;
  write_pair(import_cases().front(), folder.file("packed"), folder.file("twin"));
  ExportOptions options;
  options.checkpoint = folder.file("packed");
  options.method = Method::gptq;
  const auto calibrated = plan_export(options);
  ASSERT_FALSE(calibrated);
  EXPECT_EQ(calibrated.error().code, ErrorCode::unsupported);
  EXPECT_THAT(calibrated.error().message, HasSubstr("is quantized already (w4g32)"));
  options.method = Method::mse;
  options.recipe.rules = {{"layers.1.mlp.up_proj.weight", *parse_codec("w8")}};
  const auto changed = plan_export(options);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ErrorCode::usage);
  EXPECT_THAT(changed.error().message, HasSubstr("keeps its codes"));
  options.recipe = {};
  EXPECT_TRUE(plan_export(options));
}

TEST(ImportMerge, AdaptersAreNotMergedIntoQuantizedCheckpoints) {
  const TemporaryFolder folder;
  write_pair(import_cases().front(), folder.file("packed"), folder.file("twin"));
  const std::string adapter = test_data("reference/lora_qwen2_tied_plain/adapter");
  const auto merged = open_source_model(folder.file("packed"), {{adapter, 1}});
  ASSERT_FALSE(merged);
  EXPECT_EQ(merged.error().code, ErrorCode::unsupported);
  EXPECT_THAT(merged.error().message, HasSubstr("quantized"));
}

}  // namespace
}  // namespace hexlm
