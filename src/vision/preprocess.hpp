#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "vision/image.hpp"

namespace hexlm {

/// How a checkpoint wants its images prepared (`preprocessor_config.json`). The defaults are the processor's
/// own, for keys that a file leaves out.
struct PreprocessorConfig {
  int patch_size = 14;
  int temporal_patch_size = 2;
  int merge_size = 2;
  /// Pixel counts of the resized image, from `size.shortest_edge` and `size.longest_edge` or the older
  /// `min_pixels` and `max_pixels`, which win.
  int64_t min_pixels = 56 * 56;
  int64_t max_pixels = 28 * 28 * 1280;
  std::array<float, 3> mean = {0.48145466F, 0.4578275F, 0.40821073F};
  std::array<float, 3> deviation = {0.26862954F, 0.26130258F, 0.27577711F};
  /// 1 when the file says not to rescale.
  double rescale_factor = 1.0 / 255.0;
  bool resize = true;

  /// Side in pixels of what becomes one token of the language model; resized sides are multiples of it.
  int factor() const { return patch_size * merge_size; }
  /// Values of one patch: channels x frames x side x side.
  int64_t patch_elements() const { return int64_t{3} * temporal_patch_size * patch_size * patch_size; }
};

/// Reads the text of a `preprocessor_config.json`, or of a `processor_config.json` with its
/// `image_processor`. Errors: bad_input for malformed JSON, a key of the wrong type or out of range;
/// unsupported for a resampling filter other than bicubic.
Result<PreprocessorConfig> parse_preprocessor_config(std::string_view text, const std::string& origin);
Result<PreprocessorConfig> load_preprocessor_config(const std::string& path);
/// Lowers `max_pixels` (and `min_pixels`, where it would exceed it) to a user's limit, in pixels.
void limit_pixels(PreprocessorConfig& config, int64_t max_pixels);

struct ImageSize {
  int width = 0;
  int height = 0;
  bool operator==(const ImageSize&) const = default;
};

/// The size an image is scaled to (spec B.1.2): sides rounded, half to even, to multiples of the factor, then
/// scaled to at most `max_pixels` or at least `min_pixels`. Errors: bad_input when a side is not positive or
/// one is more than 200 times the other.
Result<ImageSize> smart_resize(ImageSize size, const PreprocessorConfig& config);

/// Patches of an image, or of a pair of frames, in time, down and across, before merging.
struct ImageGrid {
  int64_t t = 1;
  int64_t h = 0;
  int64_t w = 0;
  int64_t patches() const { return t * h * w; }
  /// Tokens of the language model.
  int64_t tokens(int merge_size) const { return patches() / (int64_t{merge_size} * merge_size); }
  bool operator==(const ImageGrid&) const = default;
};

/// What a vision tower takes: `pixel_values` is [grid.patches(), config.patch_elements()], rows in the order
/// of merged blocks, each row channel, frame, y, x (spec B.1.6).
struct PreparedImage {
  ImageGrid grid;
  std::vector<float> pixel_values;
};

/// Scales, normalises and cuts one still image; its frame is repeated `temporal_patch_size` times. Errors:
/// those of `smart_resize`, and bad_input when the config forbids resizing and a side is no multiple of the
/// factor.
Result<PreparedImage> preprocess_image(const Image& image, const PreprocessorConfig& config);

}  // namespace hexlm
