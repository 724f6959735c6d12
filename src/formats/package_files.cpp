#include <filesystem>
#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/mapped_file.hpp"
#include "formats/package.hpp"

namespace hexlm {
namespace {

constexpr const char* changed_hint =
    "copy or export the package again; --no-verify takes a file that was changed on purpose";

bool is_tensor_file(std::string_view name) { return name.ends_with(".safetensors"); }

}  // namespace

PackageFile package_file(std::string name, std::string_view content) {
  return {std::move(name), content.size(), hash64(std::as_bytes(std::span(content)))};
}

Status verify_file(const std::string& folder, const PackageFile& file) {
  const std::string path = (std::filesystem::path(folder) / file.name).string();
  HEXLM_ASSIGN(const MappedFile mapped, MappedFile::open(path));
  if (mapped.bytes().size() != file.bytes) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: the manifest says {} bytes, the file has {}: damaged or edited", path,
                            file.bytes, mapped.bytes().size()),
                changed_hint);
  }
  if (is_tensor_file(file.name)) return {};
  const uint64_t checksum = hash64(mapped.bytes());
  if (checksum == file.checksum) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("{}: the manifest has checksum {}, the file's bytes give {}: damaged or edited",
                          path, to_hex(file.checksum), to_hex(checksum)),
              changed_hint);
}

Status verify_text_files(const std::string& folder) {
  HEXLM_ASSIGN(const Manifest manifest, read_manifest(folder, true));
  for (const PackageFile& file : manifest.files) {
    if (!is_tensor_file(file.name)) HEXLM_TRY(verify_file(folder, file));
  }
  return {};
}

}  // namespace hexlm
