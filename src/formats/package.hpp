#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/codec.hpp"
#include "formats/safetensors.hpp"

namespace hexlm {

/// The version this program writes. A reader refuses a higher one (bad_input, naming both versions).
inline constexpr int package_format_version = 1;
/// Data alignment of every tensor in a package, in bytes: one HVX vector, two x86 cache lines.
inline constexpr size_t package_alignment = 128;
inline constexpr const char* weights_file = "weights.safetensors";
/// Apart from the rest, so that a text-only run need not read it.
inline constexpr const char* vision_file = "vision.safetensors";

/// One weight of a package, as the manifest lists it.
struct PackageTensor {
  std::string name;  ///< canonical parameter name
  std::string file;  ///< "weights.safetensors" or "vision.safetensors"
  Codec codec;
  std::vector<int64_t> shape;  ///< logical shape
  uint64_t stored_bytes = 0;   ///< codes + scales + offsets
  uint64_t checksum = 0;       ///< XXH3-64 over the parts in the order of tensor_plans
  double relative_error = 0;   ///< ‖w − ŵ‖ / ‖w‖, 0 for lossless codecs
};

/// A file of a package beside manifest.json, and beside config.json, which the user may edit.
struct PackageFile {
  std::string name;  ///< plain file name
  uint64_t bytes = 0;
  /// XXH3-64 of the whole file; of a .safetensors file of its header only, as every tensor has its own and
  /// padding is zero.
  uint64_t checksum = 0;
};
/// The entry of a file with that content.
PackageFile package_file(std::string name, std::string_view content);

/// manifest.json. `architecture` is the model type, `configuration` the source's config.json whole, and
/// `provenance` how and from what it was made: argv, tool version, source files with sizes and hashes,
/// method. `files` lists every file that the package was written with and that must not change.
struct Manifest {
  int format_version = package_format_version;
  std::string architecture;
  nlohmann::ordered_json configuration;
  nlohmann::ordered_json provenance;
  std::vector<PackageFile> files;
  std::vector<PackageTensor> tensors;
};

/// Everything but the manifest's own checksum.
nlohmann::ordered_json to_json(const Manifest& manifest);
/// The text of a manifest.json: `root` and, as its last member, `checksum`: the XXH3-64 of this very text
/// with the checksum's 16 digits read as zeros. So no byte of it, white space included, changes unnoticed.
std::string seal_manifest(nlohmann::ordered_json root);
/// With `verify`, the text's checksum is compared as well. Errors: bad_input naming `origin` and the field.
Result<Manifest> parse_manifest(std::string_view text, const std::string& origin, bool verify);
/// Reads and parses a package's manifest.json. Errors: as above, and those of reading it.
Result<Manifest> read_manifest(const std::string& folder, bool verify);

/// Compares a listed file's size and, unless it is a .safetensors file, its checksum. Errors: bad_input,
/// naming the file and both values.
Status verify_file(const std::string& folder, const PackageFile& file);
/// Everything of a package that reads text needs (tokenizer, chat template, settings): the manifest and every
/// listed file but the weights.
Status verify_text_files(const std::string& folder);

/// How a weight's parts are named in a package's safetensors files: float codecs are stored under `name`;
/// integer codecs as `name` + ".codes" / ".scales" / ".offsets"; two-level codecs as ".codes" /
/// ".group_scales" /
/// ".scales" (of the rows).
std::vector<TensorPlan> tensor_plans(const PackageTensor& tensor);
/// Bytes of those parts together. `shape` is a weight's, its element count below 2^63.
uint64_t stored_bytes(const Codec& codec, const std::vector<int64_t>& shape);

/// An opened package: manifest checked against the tensor files (every tensor present with the codec's dtype
/// and shape, nothing unlisted but padding).
class Package : public WeightSource {
 public:
  /// With `verify`, the checksums of the manifest, of every listed file and of every tensor outside
  /// vision_file are compared (in parallel over `threads`). Errors: bad_input, naming file, tensor or field
  /// and both values.
  static Result<std::shared_ptr<Package>> open(const std::string& folder, bool verify, int threads);
  /// True when `folder` holds a manifest.json.
  static bool is_package(const std::string& folder);

  const Manifest& manifest() const { return manifest_; }
  const std::string& folder() const { return folder_; }
  /// Whether `open` compared the checksums.
  bool verified() const { return verified_; }
  /// The manifest's entry of a weight; nullptr when there is none.
  const PackageTensor* find_tensor(std::string_view name) const;
  /// Compares one tensor's checksum with the manifest's.
  Status verify(const PackageTensor& tensor) const;
  /// Compares those of all tensors in one of the package's files.
  Status verify_tensors(std::string_view file, int threads) const;

  Result<WeightView> find(std::string_view name) const override;
  bool contains(std::string_view name) const override;
  void release(const WeightView& weight) const override;
  std::string origin() const override { return folder_; }

 private:
  Package() = default;
  Status open_files();
  Status verify_frame(const PackageFile& listed) const;
  Status verify_weights(int threads) const;
  Status verify_some(const std::vector<size_t>& tensors, int threads) const;
  std::vector<TensorView> stored_parts(const PackageTensor& tensor) const;
  TensorView expanded_scales(const PackageTensor& tensor, const std::vector<TensorView>& parts) const;
  std::string folder_;
  bool verified_ = false;
  Manifest manifest_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, SafetensorsFile, std::less<>> files_;
  /// Scales of two-level tensors as fp16, made when a tensor is first asked for; views point into them.
  mutable std::mutex expanded_mutex_;
  mutable std::map<std::string, std::vector<uint16_t>, std::less<>> expanded_;
};

}  // namespace hexlm
