#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "graph/graph.hpp"

namespace hexlm {

/// What a node is applied to, already looked up. Pointers are borrowed; `state` may be null.
struct Operands {
  std::vector<const Value*> inputs;
  std::vector<const Parameter*> parameters;
  const State* state = nullptr;
};

/// The shape of the op's output (its dtype is always f32), as the comments of graph/ops.hpp define it, or
/// what was expected and what came, in one line without the node's name.
tl::expected<Shape, std::string> infer_output(const Op& op, const Operands& operands);

/// "key_value_cache", "convolution", "delta_net"
std::string_view to_string(State::Kind kind);

}  // namespace hexlm
