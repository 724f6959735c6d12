#pragma once

#include <span>

#include "base/error.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// The part of `graph` that computes the values `to` from the values `from`, under the names it has there.
/// Its inputs are `from` in that order, then those inputs of `graph` that it needs besides; its outputs are
/// `to`. Only nodes, parameters and states that it needs are in it, and no hidden values are marked. Errors:
/// runtime for a value of `to` that is in `from` or is an input, and what the verifier reports.
Result<Graph> extract(const Graph& graph, std::span<const ValueId> from, std::span<const ValueId> to);

}  // namespace hexlm
