#include "backends/null/null_backends.hpp"

#include <array>
#include <fmt/format.h>

namespace hexlm {
namespace {

constexpr std::array<NullBackend, 4> absent{{
    {"opencl", "Adreno and other OpenCL GPUs",
     "an OpenCL driver with its headers and the sources of src/backends/opencl"},
    {"hexagon", "the Hexagon DSP",
     "a Hexagon compiler with HVX, FastRPC and the sources of src/backends/hexagon"},
    {"qnn", "Qualcomm's neural processing unit", "the QNN SDK's headers and the sources of src/backends/qnn"},
    {"onnxruntime", "ONNX Runtime's execution providers",
     "the ONNX Runtime library and the sources of src/backends/onnxruntime"},
}};

}  // namespace

std::span<const NullBackend> null_backends() { return absent; }

Error absence(const NullBackend& backend) {
  return Error{ErrorCode::device,
               fmt::format("backend '{}' ({}) is not part of this build", backend.name, backend.device),
               fmt::format("building it takes {}; until then use --backend cpu", backend.needs)};
}

}  // namespace hexlm
