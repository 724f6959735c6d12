#pragma once

#include <span>
#include <string_view>

#include "base/error.hpp"

namespace hexlm {

/// A backend that this build lacks: it answers with what would have to be built.
struct NullBackend {
  std::string_view name;
  std::string_view device;  ///< what it would run on
  std::string_view needs;   ///< what building it takes
};

std::span<const NullBackend> null_backends();

/// The device error that stands in for the backend.
Error absence(const NullBackend& backend);

}  // namespace hexlm
