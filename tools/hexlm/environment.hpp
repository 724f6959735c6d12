#pragma once

#include "base/error.hpp"
#include "formats/json.hpp"

namespace hexlm::tool {

/// Version, compiler, kernel sets (the one in use and those built in), processor and its features, for
/// `version` and for a benchmark's record. Errors: those of select_kernels.
Result<Json> describe_environment();

}  // namespace hexlm::tool
