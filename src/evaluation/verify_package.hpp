#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "quantization/adapted_weights.hpp"

namespace hexlm {

/// What `export --verify` found. `tokens` fixed pseudo-random tokens went through three runs: the package as
/// a user runs it (precision high), the same stored weights in double precision without any kernel, and the
/// checkpoint's weights in double precision. The first two must agree; how far the third is, is what
/// quantization costs, and no verdict.
struct Verification {
  int64_t tokens = 0;
  bool finite = false;
  bool weights_compared = false;       ///< every stored value was encoded anew from the checkpoint
  double execution_error = 0;          ///< ‖package − exact‖ / ‖exact‖ of the logits, same weights
  double allowed_execution_error = 0;  ///< what of it float32 arithmetic explains
  double relative_error = 0;           ///< ‖package − checkpoint‖ / ‖checkpoint‖ of the logits
  double kl_mean = 0;
  double top1_agreement = 0;
  /// ‖package − checkpoint‖ / ‖checkpoint‖ of the features of a fixed picture; none without a tower.
  std::optional<double> vision_relative_error;

  bool passed() const { return finite && execution_error <= allowed_execution_error; }
  /// verification, naming the value and the allowance.
  Error error() const;
  /// What a deployer should hear about a package that is right but far from its source; "" when it is near.
  std::string warning() const;
};

/// Errors: bad_input for a package whose checksums differ; verification when a stored value is not what the
/// checkpoint's weights give (round to nearest only: other methods choose codes that can't be told from the
/// weights alone). Memory is bounded by the values of one layer, whatever the model's size.
/// `rotated` says that the package's residual stream was turned.
Result<Verification> verify_package(const std::string& checkpoint, const std::vector<AdapterChoice>& adapters,
                                    const std::string& package, int threads, bool rotated = false);
Json to_json(const Verification& verification);
std::string describe(const Verification& verification);

}  // namespace hexlm
