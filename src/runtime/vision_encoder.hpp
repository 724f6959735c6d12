#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/error.hpp"
#include "runtime/model.hpp"
#include "runtime/prompt.hpp"
#include "vision/image.hpp"
#include "vision/preprocess.hpp"

namespace hexlm {

struct VisionOptions {
  std::string backend = "cpu";
  int threads = 1;
  std::vector<int> processors;  ///< that threads stay on while they compute; empty: any
  Precision precision = Precision::normal;
  /// Pixels of a resized image at most; 0: what the model's preprocessor_config.json says.
  int64_t max_pixels = 0;
  /// Check the vision weights (checksums of a package, NaN in a checkpoint) when they are first needed.
  bool verify = true;
  DecodeLimits decode;
  /// Bytes of features kept for images that may come again.
  uint64_t cache_bytes = uint64_t{256} << 20;
};

/// What images have cost since the encoder was made, in seconds.
struct VisionTimings {
  double load_s = 0;  ///< preparing the tower's weights, at the first image and when one needs more memory
  double decode_s = 0;
  double preprocess_s = 0;
  double tower_s = 0;
  int64_t images = 0;      ///< asked for
  int64_t cache_hits = 0;  ///< of them, those that had been encoded before
  double total() const { return load_s + decode_s + preprocess_s + tower_s; }
};

/// Turns images into features for one model. Making it is cheap: the tower is compiled, and its weights are
/// read, at the first image. Not thread-safe.
class VisionEncoder {
 public:
  /// Errors: unsupported when the model has no vision tower; bad_input from preprocessor_config.json (which
  /// must be there and agree with config.json on patch and merge sizes); usage for a `max_pixels` below one
  /// image token.
  static Result<std::unique_ptr<VisionEncoder>> create(std::shared_ptr<const Model> model,
                                                       const VisionOptions& options);
  ~VisionEncoder();

  /// The image in a file (JPEG, PNG or WebP). The same content gives the same features without work, whatever
  /// its path. Errors: those of decode_image, smart_resize and the backend; interrupted.
  Result<std::shared_ptr<const ImageFeatures>> encode_file(const std::string& path);
  /// As above for a file in memory; `origin` names it in messages.
  Result<std::shared_ptr<const ImageFeatures>> encode_bytes(std::span<const std::byte> file,
                                                            const std::string& origin);
  /// As above for pixels.
  Result<std::shared_ptr<const ImageFeatures>> encode_image(const Image& image);
  /// Runs the tower on what preprocessing makes, without looking into the cache. Errors: usage when the
  /// pixel values don't match the grid or the tower.
  Result<std::shared_ptr<const ImageFeatures>> encode_prepared(const PreparedImage& image);

  const PreprocessorConfig& preprocessor() const { return preprocessor_; }
  const VisionTimings& timings() const { return timings_; }
  /// As Session::placement, of the tower; empty before the first image.
  std::string placement() const;
  /// Bytes of prepared weights and of the arena; 0 before the first image.
  uint64_t weight_bytes() const;
  uint64_t arena_bytes() const;

 private:
  VisionEncoder(std::shared_ptr<const Model> model, const VisionOptions& options);
  Status prepare_plan(int64_t cells);
  Status check_weights();
  std::shared_ptr<const ImageFeatures> find_cached(uint64_t key);
  void keep(uint64_t key, const std::shared_ptr<const ImageFeatures>& features);

  std::shared_ptr<const Model> model_;
  VisionOptions options_;
  PreprocessorConfig preprocessor_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<StateSet> state_;
  int64_t plan_cells_ = 0;
  bool checked_ = false;
  /// Content hash and features, the latest used first.
  std::list<std::pair<uint64_t, std::shared_ptr<const ImageFeatures>>> cache_;
  uint64_t cached_bytes_ = 0;
  VisionTimings timings_;
};

}  // namespace hexlm
