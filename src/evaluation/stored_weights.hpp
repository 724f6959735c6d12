#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "formats/package.hpp"
#include "formats/source_weights.hpp"

namespace hexlm {

/// Encodes every tensor of a package anew from its checkpoint, rounding to nearest with the plainest row
/// kernels, and compares every code, scale, offset and float. Weights that were quantized already must be in
/// the package byte for byte. Memory: one block of rows a thread, and a weight that the source computes.
/// Errors: verification, naming file, tensor, position and both values; interrupted; those of reading.
Status check_stored_weights(const Package& package, const SourceWeights& checkpoint, int threads);

}  // namespace hexlm
