#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "quantization/export.hpp"

namespace hexlm::tool {

/// What `export --verify` found: logits of the package against the checkpoint's, both with float activations.
struct Verification {
  int64_t tokens = 0;
  bool finite = false;
  double relative_error = 0;
  double kl_mean = 0;
  double top1_agreement = 0;
  double allowed_relative_error = 0;
  std::string codecs;  ///< what the allowance follows from: "lossless", "4 bits"
  /// Image features of a fixed picture, and their allowance; none without a tower.
  std::optional<double> vision_relative_error;
  double vision_allowed = 0;

  bool passed() const {
    return finite && relative_error <= allowed_relative_error &&
           vision_relative_error.value_or(0) <= vision_allowed;
  }
  /// verification, naming the value and the allowance.
  Error error() const;
};

/// Opens the package (checksums) and the checkpoint, and runs 64 fixed pseudo-random tokens, and a
/// picture where there is a vision tower, through both.
Result<Verification> verify_package(const ExportOptions& options, const ExportPlan& plan);
Json to_json(const Verification& verification);
std::string describe(const Verification& verification);

}  // namespace hexlm::tool
