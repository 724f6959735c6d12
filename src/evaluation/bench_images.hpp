#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "evaluation/bench.hpp"
#include "runtime/vision_encoder.hpp"
#include "vision/preprocess.hpp"

namespace hexlm {

/// What images of one size cost; seconds are means over the repetitions.
struct ImageBenchRow {
  BenchRow row;  ///< of the vision tower: "vision256x256", images per second
  int64_t tokens = 0;
  double tower_s = 0;
  double tower_stddev_s = 0;
  double preprocess_s = 0;  ///< scaling and cutting, which the row leaves out
};

/// A synthetic image, prepared and encoded once unmeasured, then `repetitions` times. Errors: usage for a
/// size without pixels or without repetitions, limit for more pixels than a file may have; those of the
/// encoder.
Result<ImageBenchRow> bench_image(VisionEncoder& encoder, ImageSize size, int repetitions);

}  // namespace hexlm
