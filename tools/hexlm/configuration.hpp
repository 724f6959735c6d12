#pragma once

#include <map>
#include <string>

#include "base/error.hpp"
#include "evaluation/bisect.hpp"
#include "hexlm/arguments.hpp"

namespace hexlm::tool {

/// A configuration for `bisect`: a JSON file, or a list "model=DIR,quant=w4g64,precision=high". Keys are
/// `model`, what `export` takes (quant, lm_head, embedding, vision, method, calibration with its samples,
/// tokens and seed) and the flags of `eval`, with _ or -. Several calibration files, adapters or their scales
/// are joined with ':', or a list in JSON. Errors: usage for an unknown key, naming the nearest.
Result<Configuration> read_configuration(const std::string& text);

/// Packages made for configurations, in a temporary folder that is removed at the end. Each combination of
/// model and codecs is exported once.
class PackageCache {
 public:
  static Result<PackageCache> create();
  PackageCache(PackageCache&& other) noexcept;
  PackageCache& operator=(PackageCache&&) = delete;
  PackageCache(const PackageCache&) = delete;
  ~PackageCache();

  /// The folder to run: the model itself when the configuration names no codec, else a package of it. Parts
  /// whose codec is not named stay lossless.
  Result<std::string> folder_for(const Configuration& configuration, int threads);

 private:
  explicit PackageCache(std::string root) : root_(std::move(root)) {}
  std::string root_;
  std::map<std::string, std::string> packages_;
};

/// The configuration as arguments of `eval`, for `folder`; `defaults` fills in what it leaves open.
Result<Arguments> arguments_of(const Configuration& configuration, const std::string& folder,
                               const FlagValues& defaults);

}  // namespace hexlm::tool
