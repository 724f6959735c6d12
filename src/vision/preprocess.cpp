#include "vision/preprocess.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "vision/resize.hpp"

namespace hexlm {
namespace {

constexpr double max_side_ratio = 200;

/// The nearest multiple, ties to the even one, as Python's `round`: nearbyint in the default rounding mode.
int64_t round_to_multiple(int side, int factor) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(side) / factor)) * factor;
}

/// Normalised value of each 8-bit level, for each channel.
using LevelTable = std::array<std::array<float, 256>, 3>;

LevelTable level_table(const PreprocessorConfig& config) {
  LevelTable table;
  for (size_t channel = 0; channel < 3; ++channel) {
    for (size_t level = 0; level < 256; ++level) {
      const auto value = static_cast<float>(static_cast<double>(level) * config.rescale_factor);
      table[channel][level] = (value - config.mean[channel]) / config.deviation[channel];
    }
  }
  return table;
}

/// Writes the patch whose upper left pixel is at (`top`, `left`); returns the end of its row.
float* write_patch(const Image& image, const PreprocessorConfig& config, const LevelTable& table, int64_t top,
                   int64_t left, float* out) {
  const int64_t stride = int64_t{3} * image.width;
  for (size_t channel = 0; channel < 3; ++channel) {
    const float* frame = out;
    for (int64_t y = top; y < top + config.patch_size; ++y) {
      const uint8_t* in = image.rgb.data() + y * stride + left * 3 + static_cast<int64_t>(channel);
      for (int x = 0; x < config.patch_size; ++x, in += 3) *out++ = table[channel][*in];
    }
    const int64_t frame_elements = int64_t{config.patch_size} * config.patch_size;
    for (int t = 1; t < config.temporal_patch_size; ++t) out = std::copy_n(frame, frame_elements, out);
  }
  return out;
}

PreparedImage cut_patches(const Image& image, const PreprocessorConfig& config) {
  PreparedImage result;
  result.grid = {1, image.height / config.patch_size, image.width / config.patch_size};
  result.pixel_values.resize(static_cast<size_t>(result.grid.patches() * config.patch_elements()));
  const LevelTable table = level_table(config);
  const int merge = config.merge_size;
  float* out = result.pixel_values.data();
  for (int64_t block_row = 0; block_row < result.grid.h; block_row += merge) {
    for (int64_t block_column = 0; block_column < result.grid.w; block_column += merge) {
      for (int64_t i = 0; i < int64_t{merge} * merge; ++i) {
        const int64_t row = block_row + i / merge;
        const int64_t column = block_column + i % merge;
        out = write_patch(image, config, table, row * config.patch_size, column * config.patch_size, out);
      }
    }
  }
  return result;
}

}  // namespace

Result<ImageSize> smart_resize(ImageSize size, const PreprocessorConfig& config) {
  const auto [shorter, longer] = std::minmax(size.width, size.height);
  if (shorter <= 0 || static_cast<double>(longer) / shorter > max_side_ratio) {
    return fail(ErrorCode::bad_input,
                fmt::format("the image is {}x{} pixels; one side may be at most {} times the "
                            "other",
                            size.width, size.height, max_side_ratio));
  }
  const int factor = config.factor();
  const double pixels = static_cast<double>(size.width) * size.height;
  const auto down = [&](int side, double ratio) {
    return std::max<int64_t>(factor, static_cast<int64_t>(std::floor(side / ratio / factor)) * factor);
  };
  const auto up = [&](int side, double ratio) {
    return static_cast<int64_t>(std::ceil(side * ratio / factor)) * factor;
  };
  int64_t height = round_to_multiple(size.height, factor);
  int64_t width = round_to_multiple(size.width, factor);
  if (height * width > config.max_pixels) {
    const double ratio = std::sqrt(pixels / static_cast<double>(config.max_pixels));
    height = down(size.height, ratio);
    width = down(size.width, ratio);
  } else if (height * width < config.min_pixels) {
    const double ratio = std::sqrt(static_cast<double>(config.min_pixels) / pixels);
    height = up(size.height, ratio);
    width = up(size.width, ratio);
  }
  return ImageSize{static_cast<int>(width), static_cast<int>(height)};
}

Result<PreparedImage> preprocess_image(const Image& image, const PreprocessorConfig& config) {
  if (config.resize) {
    HEXLM_ASSIGN(const ImageSize size, smart_resize({image.width, image.height}, config));
    return cut_patches(resize_bicubic(image, size.width, size.height), config);
  }
  if (image.width % config.factor() != 0 || image.height % config.factor() != 0) {
    return fail(
        ErrorCode::bad_input,
        fmt::format("the image is {}x{} pixels, and the model does not resize: expected multiples of {}",
                    image.width, image.height, config.factor()));
  }
  return cut_patches(image, config);
}

}  // namespace hexlm
