#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/error.hpp"
#include "formats/json.hpp"
#include "runtime/session.hpp"

namespace hexlm {

/// What a node costs by its shapes, in one step: bytes of weights, cache and activations that must move, and
/// multiply-adds.
struct NodeCost {
  double bytes = 0;
  double macs = 0;
};
/// `past` is the number of tokens in the cache before the step.
NodeCost cost_of(const Graph& graph, const Node& node, const WeightSource& weights,
                 const SymbolValues& symbols, int64_t past, CacheType cache);

struct NodeProfile {
  std::string name;
  std::string op;
  int64_t calls = 0;
  double seconds = 0;
  NodeCost cost;
};

struct TraceEvent {
  int32_t node = 0;
  double start_s = 0;
  double duration_s = 0;
};

struct Profile {
  std::string name;  ///< "pp512", "tg16"
  std::vector<NodeProfile> nodes;
  std::vector<TraceEvent> events;
  double seconds = 0;
};

/// Runs `tokens` tokens in one prefill, or one by one with `decode`, and measures every node: the time from
/// the node before to this one. Errors: those of Session::forward.
Result<Profile> profile(Session& session, int64_t tokens, bool decode);

/// Bytes a second that `threads` threads read from memory: the best of several passes over 256 MB.
double measure_memory_bandwidth(int threads);

/// {name, seconds, ops[{op, seconds, share}], nodes[{name, op, calls, seconds, share, bytes, gb_per_s, macs,
/// gmac_per_s, memory_share}]}, nodes by time; `bandwidth` in bytes a second.
Json profile_json(const Profile& profile, double bandwidth);
/// Trace events for chrome://tracing and Perfetto: a process a profile, its nodes in time.
Json chrome_trace(const std::vector<Profile>& profiles);

}  // namespace hexlm
