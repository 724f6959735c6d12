#pragma once

#include <memory>
#include <string_view>

#include "backends/backend.hpp"

namespace hexlm {

inline constexpr std::string_view cpu_backend_name = "cpu";

/// Runs every op of the graph with the kernels that `select_kernels` picks when a plan is compiled.
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace hexlm
