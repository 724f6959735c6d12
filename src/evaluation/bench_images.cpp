#include "evaluation/bench_images.hpp"

#include <chrono>
#include <fmt/format.h>
#include <random>
#include <utility>

namespace hexlm {
namespace {

using ImageClock = std::chrono::steady_clock;

double seconds_between(ImageClock::time_point start, ImageClock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

/// Noise, always the same for a size: neither resizing nor the tower depends on what a picture shows.
Image noise_image(ImageSize size) {
  Image image{size.width, size.height, {}};
  image.rgb.resize(size_t{3} * static_cast<size_t>(size.width) * static_cast<size_t>(size.height));
  std::mt19937 generator(1);
  for (uint8_t& value : image.rgb) value = static_cast<uint8_t>(generator() >> 24U);
  return image;
}

Status check_image_bench(ImageSize size, int repetitions) {
  if (size.width < 1 || size.height < 1 || repetitions < 1) {
    return fail(ErrorCode::usage,
                fmt::format("an image of {}x{} pixels, {} times: expected at least 1 of each", size.width,
                            size.height, repetitions));
  }
  const auto pixels = static_cast<uint64_t>(size.width) * static_cast<uint64_t>(size.height);
  const uint64_t limit = DecodeLimits{}.max_pixels;
  if (pixels <= limit) return {};
  return fail(ErrorCode::limit,
              fmt::format("an image of {}x{} pixels: files may have {}", size.width, size.height, limit),
              "measure a smaller size");
}

}  // namespace

Result<ImageBenchRow> bench_image(VisionEncoder& encoder, ImageSize size, int repetitions) {
  HEXLM_TRY(check_image_bench(size, repetitions));
  const Image image = noise_image(size);
  ImageBenchRow result;
  result.row.name = fmt::format("vision{}x{}", size.width, size.height);
  result.row.unit = "images/s";
  BenchRow towers;
  for (int i = -1; i < repetitions; ++i) {
    const auto start = ImageClock::now();
    HEXLM_ASSIGN(const PreparedImage prepared, preprocess_image(image, encoder.preprocessor()));
    const auto prepared_at = ImageClock::now();
    HEXLM_ASSIGN(const auto features, encoder.encode_prepared(prepared));
    const auto end = ImageClock::now();
    result.tokens = features->tokens;
    if (i < 0) continue;
    result.preprocess_s += seconds_between(start, prepared_at) / repetitions;
    towers.samples.push_back(seconds_between(prepared_at, end));
    result.row.samples.push_back(1 / towers.samples.back());
  }
  summarize(result.row);
  summarize(towers);
  result.tower_s = towers.mean;
  result.tower_stddev_s = towers.stddev;
  return result;
}

}  // namespace hexlm
