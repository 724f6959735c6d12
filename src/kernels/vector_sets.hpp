#pragma once

#include <span>

#include "kernels/kernels.hpp"

namespace hexlm {

/// The vector sets of the processor family this program is built for, best first. The build takes the
/// definition from one folder: x86/, or portable/ for a family without kernels of its own.
std::span<const KernelSet* const> vector_kernel_sets();

}  // namespace hexlm
