#include "formats/safetensors.hpp"

#include <utility>

#include "formats/safetensors_header.hpp"

namespace hexlm {

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  HEXLM_ASSIGN(MappedFile mapped, MappedFile::open(path));
  HEXLM_ASSIGN(SafetensorsContent content, parse_safetensors(mapped.bytes(), path));
  SafetensorsFile file;
  file.header_bytes_ = content.header_bytes;
  file.file_ = std::make_shared<MappedFile>(std::move(mapped));
  file.tensors_ = std::move(content.tensors);
  file.metadata_ = std::move(content.metadata);
  for (size_t i = 0; i < file.tensors_.size(); ++i) file.index_.emplace(file.tensors_[i].name, i);
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace hexlm
