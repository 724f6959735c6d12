#pragma once

#include <string>

#include "base/error.hpp"
#include "formats/codec.hpp"

namespace hexlm {

/// Looks for NaN and infinities in a float weight's elements, or in an integer weight's scales and offsets.
/// Errors: bad_input, naming `origin` (the file), the tensor, the flat index of the first such element and
/// its value.
Status check_finite(const WeightView& weight, const std::string& origin);

}  // namespace hexlm
