#include "graph/ops.hpp"

namespace hexlm {
namespace {

struct NameOf {
  std::string_view operator()(const op::Embedding&) const { return "embedding"; }
  std::string_view operator()(const op::Linear&) const { return "linear"; }
  std::string_view operator()(const op::RmsNorm&) const { return "rms_norm"; }
  std::string_view operator()(const op::GatedRmsNorm&) const { return "gated_rms_norm"; }
  std::string_view operator()(const op::Reshape&) const { return "reshape"; }
  std::string_view operator()(const op::Slice&) const { return "slice"; }
  std::string_view operator()(const op::Rope&) const { return "rope"; }
  std::string_view operator()(const op::Attention&) const { return "attention"; }
  std::string_view operator()(const op::Add&) const { return "add"; }
  std::string_view operator()(const op::SiluMultiply&) const { return "silu_multiply"; }
  std::string_view operator()(const op::SigmoidMultiply&) const { return "sigmoid_multiply"; }
  std::string_view operator()(const op::CausalConvolution&) const { return "causal_convolution"; }
  std::string_view operator()(const op::GatedDeltaNet&) const { return "gated_delta_net"; }
  std::string_view operator()(const op::MixtureOfExperts&) const { return "mixture_of_experts"; }
  std::string_view operator()(const op::GatherRows&) const { return "gather_rows"; }
  std::string_view operator()(const op::ReplaceRows&) const { return "replace_rows"; }
  std::string_view operator()(const op::AddRows&) const { return "add_rows"; }
  std::string_view operator()(const op::LayerNorm&) const { return "layer_norm"; }
  std::string_view operator()(const op::Gelu&) const { return "gelu"; }
  std::string_view operator()(const op::InterpolateRows&) const { return "interpolate_rows"; }
  std::string_view operator()(const op::PatchAttention&) const { return "patch_attention"; }
};

}  // namespace

std::string_view to_string(op::Gelu::Kind kind) {
  switch (kind) {
    case op::Gelu::Kind::tanh:
      return "tanh";
    case op::Gelu::Kind::erf:
      return "erf";
    case op::Gelu::Kind::quick:
      return "quick";
  }
  return "";
}

std::string_view op_name(const Op& op) { return std::visit(NameOf{}, op); }

}  // namespace hexlm
