#pragma once

#include <memory>

#include "quantization/graph_runner.hpp"

namespace hexlm {

/// Runs calibration's graphs on the CPU backend at high precision. Errors of `prepare` and `run`: the
/// backend's; interrupted after SIGINT.
std::unique_ptr<GraphRunner> make_calibration_runner(int threads);

}  // namespace hexlm
