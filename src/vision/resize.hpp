#pragma once

#include "vision/image.hpp"

namespace hexlm {

/// Scales to `width` x `height` (both positive), byte for byte as Pillow's `resize((width, height), BICUBIC)`
/// does on RGB (spec B.1.3): cubic convolution with a = -0.5, widened when shrinking so that it averages,
/// separable, columns before rows, weights in fixed point, each pass rounded to 8 bits.
Image resize_bicubic(const Image& image, int width, int height);

}  // namespace hexlm
