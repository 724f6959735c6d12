#include "vision/resize.hpp"

#include <algorithm>
#include <cmath>

namespace hexlm {
namespace {

/// Fraction bits of a weight. 32 bits hold 8 of the pixel, these, and 2 for the sign and for sums above 1.
constexpr int weight_bits = 22;
constexpr int32_t weight_half = 1 << (weight_bits - 1);
/// The cubic kernel reaches this far, in pixels of the coarser side.
constexpr double cubic_reach = 2.0;

double cubic_kernel(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

/// Of each target position: the run of source positions it mixes, and their weights.
struct ResizeWeights {
  struct Run {
    int first;
    int count;
  };
  std::vector<Run> runs;
  std::vector<int32_t> weights;  // `stride` for each target position
  size_t stride = 0;

  const int32_t* of(int target) const { return weights.data() + static_cast<size_t>(target) * stride; }
};

/// The order of operations is Pillow's: a rounding more or less here would change a byte now and then.
ResizeWeights resize_weights(int source, int target) {
  const double scale = static_cast<double>(source) / target;
  const double widening = std::max(scale, 1.0);
  const double reach = cubic_reach * widening;
  ResizeWeights result;
  result.stride = static_cast<size_t>(std::ceil(reach)) * 2 + 1;
  result.runs.resize(static_cast<size_t>(target));
  result.weights.resize(static_cast<size_t>(target) * result.stride);
  std::vector<double> exact(result.stride);
  const double shrink = 1.0 / widening;
  for (int i = 0; i < target; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(center - reach + 0.5)));
    const int count = std::min(source, static_cast<int>(std::floor(center + reach + 0.5))) - first;
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      exact[static_cast<size_t>(k)] = cubic_kernel((k + first - center + 0.5) * shrink);
      sum += exact[static_cast<size_t>(k)];
    }
    int32_t* weights = result.weights.data() + static_cast<size_t>(i) * result.stride;
    for (int k = 0; k < count; ++k) {
      const double weight = (sum != 0 ? exact[static_cast<size_t>(k)] / sum : exact[static_cast<size_t>(k)]) *
                            (1 << weight_bits);
      weights[k] = static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    result.runs[static_cast<size_t>(i)] = {first, count};
  }
  return result;
}

uint8_t round_to_pixel(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> weight_bits, 0, 255)); }

Image resize_columns(const Image& image, int width) {
  const ResizeWeights plan = resize_weights(image.width, width);
  Image result{width, image.height, {}};
  result.rgb.resize(static_cast<size_t>(width) * static_cast<size_t>(image.height) * 3);
  uint8_t* out = result.rgb.data();
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* row = image.rgb.data() + static_cast<size_t>(y) * static_cast<size_t>(image.width) * 3;
    for (int x = 0; x < width; ++x, out += 3) {
      const auto [first, count] = plan.runs[static_cast<size_t>(x)];
      const int32_t* weights = plan.of(x);
      const uint8_t* in = row + static_cast<size_t>(first) * 3;
      int32_t red = weight_half;
      int32_t green = weight_half;
      int32_t blue = weight_half;
      for (int k = 0; k < count; ++k, in += 3) {
        red += in[0] * weights[k];
        green += in[1] * weights[k];
        blue += in[2] * weights[k];
      }
      out[0] = round_to_pixel(red);
      out[1] = round_to_pixel(green);
      out[2] = round_to_pixel(blue);
    }
  }
  return result;
}

Image resize_rows(const Image& image, int height) {
  const ResizeWeights plan = resize_weights(image.height, height);
  const size_t stride = static_cast<size_t>(image.width) * 3;
  Image result{image.width, height, {}};
  result.rgb.resize(stride * static_cast<size_t>(height));
  std::vector<int32_t> sums(stride);
  for (int y = 0; y < height; ++y) {
    const auto [first, count] = plan.runs[static_cast<size_t>(y)];
    const int32_t* weights = plan.of(y);
    std::ranges::fill(sums, weight_half);
    for (int k = 0; k < count; ++k) {
      const uint8_t* in = image.rgb.data() + static_cast<size_t>(first + k) * stride;
      for (size_t i = 0; i < stride; ++i) sums[i] += in[i] * weights[k];
    }
    std::ranges::transform(sums, result.rgb.data() + static_cast<size_t>(y) * stride, round_to_pixel);
  }
  return result;
}

}  // namespace

Image resize_bicubic(const Image& image, int width, int height) {
  if (width == image.width && height == image.height) return image;
  // A pass that keeps its side would change nothing: each pixel's own weight is 1.
  if (height == image.height) return resize_columns(image, width);
  if (width == image.width) return resize_rows(image, height);
  return resize_rows(resize_columns(image, width), height);
}

}  // namespace hexlm
