#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/package.hpp"

namespace hexlm {

/// Where a package keeps weights a second time in the layout of a backend's kernels, so that opening it is a
/// memory map. The folder is an addition: a package without it is whole, only slower to open.
inline constexpr const char* prepacked_folder = "prepacked";
inline constexpr const char* prepacked_file = "cpu.safetensors";

/// One weight in the kernels' layout, whose sizes the backend knows and checks.
struct PrepackedTensor {
  std::string name;        ///< of the parameter
  uint64_t checksum = 0;   ///< XXH3-64 over codes, scales and offsets
  uint64_t made_from = 0;  ///< checksum of the package's tensor that was packed
  bool has_offsets = false;
  int64_t code_bytes = 0;
  int64_t scale_count = 0;  ///< fp16 numbers, of the offsets too
};

/// prepacked/manifest.json.
struct PrepackedManifest {
  std::string layout;  ///< the kernels' name of it
  std::string target;  ///< what the user asked for, "cpu-x86-vnni"
  PackageFile file;    ///< prepacked_file
  std::vector<PrepackedTensor> tensors;
};
/// The text of prepacked/manifest.json, sealed as a package's own.
std::string to_text(const PrepackedManifest& manifest);
/// With `verify`, the text's checksum is compared as well. Errors: bad_input naming `origin` and the field.
Result<PrepackedManifest> parse_prepacked(std::string_view text, const std::string& origin, bool verify);
/// Parts of one tensor in prepacked_file, in the order of its checksum.
std::vector<TensorPlan> tensor_plans(const PrepackedTensor& tensor);

/// An opened prepacked folder.
class Prepacked {
 public:
  /// None when the package has none. With `verify`, the checksums of the manifest and of the file's header
  /// are compared; tensors are compared one by one. Errors: bad_input, naming the file and both values, also
  /// when a tensor was packed from other bytes than the package has.
  static Result<std::optional<Prepacked>> open(const std::string& package_folder, const Manifest& package,
                                               bool verify);

  const PrepackedManifest& manifest() const { return manifest_; }
  /// nullptr when the weight is not among them.
  const PackedParts* find(std::string_view name) const;
  /// Compares a tensor's checksum, where the weight is among them.
  Status verify(std::string_view name) const;

 private:
  explicit Prepacked(SafetensorsFile file) : file_(std::move(file)) {}
  Status add_tensor(const PrepackedTensor& tensor, const Manifest& package);
  PrepackedManifest manifest_;
  SafetensorsFile file_;
  struct Entry {
    PackedParts parts;
    uint64_t checksum = 0;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace hexlm
