#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "formats/json.hpp"
#include "formats/safetensors.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {

struct EditableTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

inline std::vector<EditableTensor> read_tensors(const std::string& checkpoint) {
  const auto opened = Checkpoint::open(checkpoint);
  EXPECT_TRUE(opened) << opened.error().message;
  std::vector<EditableTensor> tensors;
  if (!opened) return tensors;
  for (const TensorView* view : opened->tensors()) {
    tensors.push_back({view->name, view->dtype, view->shape, {view->bytes.begin(), view->bytes.end()}});
  }
  return tensors;
}

inline EditableTensor& find_tensor(std::vector<EditableTensor>& tensors, const std::string& name) {
  for (EditableTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return tensors.front();
}

/// Writes a copy of a checkpoint whose tensors and config.json went through `edit` first, as one file.
inline void copy_checkpoint(const std::string& from, const std::string& to,
                            const std::function<void(std::vector<EditableTensor>&, Json&)>& edit) {
  std::filesystem::create_directories(to);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.find("safetensors") != std::string::npos) continue;
    const std::filesystem::path copy = std::filesystem::path(to) / name;
    std::filesystem::copy_file(entry.path(), copy);
    std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
  }
  std::vector<EditableTensor> tensors = read_tensors(from);
  auto config = read_json(to + "/config.json");
  ASSERT_TRUE(config) << config.error().message;
  edit(tensors, *config);
  write_test_file(to + "/config.json", config->dump(1));
  std::vector<TensorPlan> plan;
  plan.reserve(tensors.size());
  for (const EditableTensor& tensor : tensors) plan.push_back({tensor.name, tensor.dtype, tensor.shape});
  auto writer = SafetensorsWriter::create(to + "/model.safetensors", plan, {}, 1);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const EditableTensor& tensor : tensors) ASSERT_TRUE(writer->write(tensor.bytes));
  ASSERT_TRUE(writer->commit());
}

}  // namespace hexlm
