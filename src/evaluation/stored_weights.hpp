#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "formats/checkpoint_weights.hpp"
#include "formats/package.hpp"

namespace hexlm {

/// Encodes every tensor of a package anew from its checkpoint, rounding to nearest with the plainest row
/// kernels, and compares every code, scale, offset and float. Memory: one block of rows a thread.
/// Errors: verification, naming file, tensor, position and both values; interrupted; those of reading.
Status check_stored_weights(const Package& package, const CheckpointWeights& checkpoint, int threads);

}  // namespace hexlm
