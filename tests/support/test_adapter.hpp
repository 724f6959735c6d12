#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "formats/json.hpp"
#include "formats/safetensors.hpp"
#include "support/test_data.hpp"

namespace hexlm {

/// An adapter folder made in the test: float32 tensors and a configuration.
class TestAdapter {
 public:
  explicit TestAdapter(const std::string& folder, uint32_t seed = 7) : folder_(folder), generator_(seed) {
    config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 6}, {"base_model_name_or_path", "some/base"}};
  }
  std::vector<float>& add(const std::string& name, std::vector<int64_t> shape) {
    int64_t elements = 1;
    for (const int64_t dim : shape) elements *= dim;
    std::normal_distribution<float> normal(0, 0.05F);
    std::vector<float> values(static_cast<size_t>(elements));
    for (float& value : values) value = normal(generator_);
    tensors_.push_back({name, std::move(shape), std::move(values)});
    return tensors_.back().values;
  }
  void add_pair(const std::string& module, int64_t outputs, int64_t inputs, int64_t rank = 2) {
    add("base_model.model." + module + ".lora_A.weight", {rank, inputs});
    add("base_model.model." + module + ".lora_B.weight", {outputs, rank});
  }
  std::vector<float>& values(const std::string& name) {
    for (Tensor& tensor : tensors_) {
      if (tensor.name == name) return tensor.values;
    }
    ADD_FAILURE() << name;
    return tensors_.front().values;
  }
  const std::string& write() {
    std::filesystem::create_directories(folder_);
    write_test_file(folder_ + "/adapter_config.json", config.dump());
    std::vector<TensorPlan> plan;
    for (const Tensor& tensor : tensors_) plan.push_back({tensor.name, DType::f32, tensor.shape});
    auto writer = SafetensorsWriter::create(folder_ + "/adapter_model.safetensors", plan, {}, 1);
    EXPECT_TRUE(writer);
    for (const Tensor& tensor : tensors_) EXPECT_TRUE(writer->write(std::as_bytes(std::span(tensor.values))));
    EXPECT_TRUE(writer->commit());
    return folder_;
  }
  Json config;

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  std::string folder_;
  std::deque<Tensor> tensors_;
  std::mt19937 generator_;
};

}  // namespace hexlm
