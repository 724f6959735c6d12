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

/// manifest.json. `architecture` is the model type, `configuration` the source's config.json whole, and
/// `provenance` how and from what it was made: argv, tool version, source files with sizes and hashes,
/// method.
struct Manifest {
  int format_version = package_format_version;
  std::string architecture;
  nlohmann::ordered_json configuration;
  nlohmann::ordered_json provenance;
  std::vector<PackageTensor> tensors;
};

nlohmann::ordered_json to_json(const Manifest& manifest);
/// Errors: bad_input naming `origin` and the field.
Result<Manifest> parse_manifest(std::string_view text, const std::string& origin);

/// How a weight's parts are named in a package's safetensors files: float codecs are stored under `name`;
/// integer codecs as `name` + ".codes" / ".scales" / ".offsets"; two-level codecs as ".codes" /
/// ".group_scales" /
/// ".scales" (of the rows).
std::vector<TensorPlan> tensor_plans(const PackageTensor& tensor);

/// An opened package: manifest checked against the tensor files (every tensor present with the codec's dtype
/// and shape, nothing unlisted but padding).
class Package : public WeightSource {
 public:
  /// With `verify`, every tensor's checksum is compared (in parallel over `threads`). Errors: bad_input,
  /// naming file, tensor and both values.
  static Result<std::shared_ptr<Package>> open(const std::string& folder, bool verify, int threads);
  /// True when `folder` holds a manifest.json.
  static bool is_package(const std::string& folder);

  const Manifest& manifest() const { return manifest_; }
  const std::string& folder() const { return folder_; }
  /// The manifest's entry of a weight; nullptr when there is none.
  const PackageTensor* find_tensor(std::string_view name) const;
  /// Compares one tensor's checksum with the manifest's.
  Status verify(const PackageTensor& tensor) const;

  Result<WeightView> find(std::string_view name) const override;
  bool contains(std::string_view name) const override;
  void release(const WeightView& weight) const override;
  std::string origin() const override { return folder_; }

 private:
  Package() = default;
  Status verify_all(int threads) const;
  std::vector<TensorView> stored_parts(const PackageTensor& tensor) const;
  TensorView expanded_scales(const PackageTensor& tensor, const std::vector<TensorView>& parts) const;
  std::string folder_;
  Manifest manifest_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, SafetensorsFile, std::less<>> files_;
  /// Scales of two-level tensors as fp16, made when a tensor is first asked for; views point into them.
  mutable std::mutex expanded_mutex_;
  mutable std::map<std::string, std::vector<uint16_t>, std::less<>> expanded_;
};

}  // namespace hexlm
