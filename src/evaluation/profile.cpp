#include "evaluation/profile.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <random>

#include "base/aligned_buffer.hpp"
#include "base/thread_pool.hpp"

namespace hexlm {
namespace {

using ProfileClock = std::chrono::steady_clock;

double parameter_bytes(const Graph& graph, const Node& node, const WeightSource& weights) {
  double bytes = 0;
  for (const ParameterId id : node.parameters) {
    const auto weight = weights.find(graph.parameter(id).name);
    if (weight) bytes += static_cast<double>(weight->stored_bytes());
  }
  return bytes;
}

double elements_of(const Graph& graph, ValueId id, const SymbolValues& symbols) {
  return static_cast<double>(elements(graph.value(id).shape, symbols));
}

double parameter_elements(const Graph& graph, ParameterId id) {
  double count = 1;
  for (const int64_t size : graph.parameter(id).shape) count *= static_cast<double>(size);
  return count;
}

/// Keys and values that a step of attention reads, and its products with them: token i sees past + i + 1.
NodeCost attention_cost(const op::Attention& op, const SymbolValues& symbols, int64_t past, CacheType cache) {
  const auto tokens = static_cast<double>(symbols.tokens);
  const double seen = tokens * (static_cast<double>(past) + (tokens + 1) / 2);
  const auto head_dim = static_cast<double>(op.head_dim);
  return {2 * static_cast<double>(past + symbols.tokens) * static_cast<double>(op.key_value_heads) *
              head_bytes(cache, head_dim),
          2 * seen * static_cast<double>(op.query_heads) * head_dim};
}

double macs_of(const Graph& graph, const Node& node, const SymbolValues& symbols) {
  if (std::holds_alternative<op::Linear>(node.op)) {
    const double columns = static_cast<double>(graph.parameter(node.parameters[0]).shape.back());
    return elements_of(graph, node.output, symbols) * columns;
  }
  const auto tokens = static_cast<double>(symbols.tokens);
  if (const auto* experts = std::get_if<op::MixtureOfExperts>(&node.op)) {
    return tokens * static_cast<double>(experts->top_k) * 3 * parameter_elements(graph, node.parameters[0]);
  }
  if (const auto* delta = std::get_if<op::GatedDeltaNet>(&node.op)) {
    // Decay and read, update, query: three passes over each head's matrix a token.
    return 3 * tokens * static_cast<double>(delta->value_heads * delta->key_dim * delta->value_dim);
  }
  if (const auto* convolution = std::get_if<op::CausalConvolution>(&node.op)) {
    return elements_of(graph, node.output, symbols) * static_cast<double>(convolution->taps);
  }
  return 0;
}

class NodeTimer final : public Observer {
 public:
  NodeTimer(const Session& session, Profile& profile) : session_(session), profile_(profile) {}

  void start_step(int64_t past) {
    past_ = past;
    last_ = ProfileClock::now();
    if (profile_.events.empty()) origin_ = last_;
  }

  void after(const Node& node, const Value&, std::span<const float>, const SymbolValues& symbols) override {
    const auto now = ProfileClock::now();
    const Graph& graph = *session_.model().graph();
    const auto index = static_cast<int32_t>(&node - graph.nodes().data());
    const double seconds = std::chrono::duration<double>(now - last_).count();
    NodeProfile& entry = profile_.nodes[static_cast<size_t>(index)];
    ++entry.calls;
    entry.seconds += seconds;
    profile_.events.push_back({index, std::chrono::duration<double>(last_ - origin_).count(), seconds});
    const NodeCost cost = cost_of(graph, node, *session_.model().weights(), symbols, past_, session_.cache());
    entry.cost.bytes += cost.bytes;
    entry.cost.macs += cost.macs;
    // What the bookkeeping takes is no node's time.
    last_ = ProfileClock::now();
  }

 private:
  const Session& session_;
  Profile& profile_;
  int64_t past_ = 0;
  ProfileClock::time_point last_;
  ProfileClock::time_point origin_;
};

Status profiled_step(Session& session, NodeTimer& timer, std::span<const int32_t> tokens) {
  timer.start_step(session.length());
  return session.forward(
      tokens, 1, [](int64_t, int64_t, std::span<const float>) { return Status(); }, &timer);
}

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

}  // namespace

NodeCost cost_of(const Graph& graph, const Node& node, const WeightSource& weights,
                 const SymbolValues& symbols, int64_t past, CacheType cache) {
  NodeCost cost;
  if (std::holds_alternative<op::Reshape>(node.op)) return cost;
  for (const ValueId id : node.inputs) cost.bytes += 4 * elements_of(graph, id, symbols);
  cost.bytes += 4 * elements_of(graph, node.output, symbols);
  if (std::holds_alternative<op::Embedding>(node.op)) {
    // Only the rows of its tokens are read.
    const double rows = static_cast<double>(graph.parameter(node.parameters[0]).shape[0]);
    cost.bytes += parameter_bytes(graph, node, weights) / rows * static_cast<double>(symbols.tokens);
    return cost;
  }
  double used = 1;
  if (const auto* experts = std::get_if<op::MixtureOfExperts>(&node.op)) {
    used = std::min(
        1.0, static_cast<double>(symbols.tokens * experts->top_k) / static_cast<double>(experts->experts));
  }
  cost.bytes += used * parameter_bytes(graph, node, weights);
  if (const auto* attention = std::get_if<op::Attention>(&node.op)) {
    const NodeCost own = attention_cost(*attention, symbols, past, cache);
    cost.bytes += own.bytes;
    cost.macs = own.macs;
    return cost;
  }
  cost.macs = macs_of(graph, node, symbols);
  return cost;
}

Result<Profile> profile(Session& session, int64_t tokens, bool decode) {
  Profile profile;
  profile.name = fmt::format("{}{}", decode ? "tg" : "pp", tokens);
  for (const Node& node : session.model().graph()->nodes()) {
    NodeProfile entry;
    entry.name = node.name;
    entry.op = op_name(node.op);
    profile.nodes.push_back(std::move(entry));
  }
  std::mt19937_64 generator(3);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids)
    id = static_cast<int32_t>(generator() % static_cast<uint64_t>(session.model().usable_vocabulary()));
  NodeTimer timer(session, profile);
  // Once without looking, so that pages and caches are warm.
  session.reset();
  HEXLM_TRY(session.forward_last(ids));
  session.reset();
  const auto start = ProfileClock::now();
  if (!decode) {
    HEXLM_TRY(profiled_step(session, timer, ids));
  } else {
    for (size_t i = 0; i < ids.size(); ++i) HEXLM_TRY(profiled_step(session, timer, {&ids[i], 1}));
  }
  profile.seconds = std::chrono::duration<double>(ProfileClock::now() - start).count();
  session.reset();
  return profile;
}

double measure_memory_bandwidth(int threads) {
  // Larger than the caches of usual processors.
  constexpr size_t bytes = size_t{256} << 20;
  constexpr int passes = 4;
  auto buffer = AlignedBuffer::allocate(bytes);
  if (!buffer) return 0;
  ThreadPool pool(threads);
  auto* words = reinterpret_cast<uint64_t*>(buffer->data());
  constexpr auto count = static_cast<int64_t>(bytes / sizeof(uint64_t));
  constexpr int64_t grain = 1 << 16;
  pool.run(count, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) words[i] = static_cast<uint64_t>(i);
  });
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 16);  // a cache line each
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = ProfileClock::now();
    pool.run(count, grain, [&](int64_t begin, int64_t end, int worker) {
      uint64_t sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += words[i];
      sums[static_cast<size_t>(worker) * 16] += sum;
    });
    best = std::max(best, static_cast<double>(bytes) /
                              std::chrono::duration<double>(ProfileClock::now() - start).count());
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total != 0 ? best : 0;  // the sums are used, so that reading is not optimized away
}

Json profile_json(const Profile& profile, double bandwidth) {
  double seconds = 0;
  std::map<std::string, double> ops;
  std::vector<const NodeProfile*> order;
  for (const NodeProfile& node : profile.nodes) {
    seconds += node.seconds;
    ops[node.op] += node.seconds;
    order.push_back(&node);
  }
  // Nodes of one time stay in their own order, which is that of their places.
  std::sort(order.begin(), order.end(), [](const NodeProfile* a, const NodeProfile* b) {
    return a->seconds != b->seconds ? a->seconds > b->seconds : a < b;
  });
  Json json = {{"name", profile.name}, {"seconds", profile.seconds}};
  for (const auto& [op, time] : ops)
    json["ops"].push_back({{"op", op}, {"seconds", time}, {"share", rate(time, seconds)}});
  std::sort(json["ops"].begin(), json["ops"].end(), [](const Json& a, const Json& b) {
    return a["seconds"].get<double>() > b["seconds"].get<double>();
  });
  for (const NodeProfile* node : order) {
    const double bytes_per_second = rate(node->cost.bytes, node->seconds);
    json["nodes"].push_back({{"name", node->name},
                             {"op", node->op},
                             {"calls", node->calls},
                             {"seconds", node->seconds},
                             {"share", rate(node->seconds, seconds)},
                             {"bytes", node->cost.bytes},
                             {"gb_per_s", bytes_per_second / 1e9},
                             {"macs", node->cost.macs},
                             {"gmac_per_s", rate(node->cost.macs, node->seconds) / 1e9},
                             {"memory_share", rate(bytes_per_second, bandwidth)}});
  }
  return json;
}

Json chrome_trace(const std::vector<Profile>& profiles) {
  Json events = Json::array();
  for (size_t p = 0; p < profiles.size(); ++p) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", p + 1},
                      {"tid", 1},
                      {"args", {{"name", profiles[p].name}}}});
    for (const TraceEvent& event : profiles[p].events) {
      const NodeProfile& node = profiles[p].nodes[static_cast<size_t>(event.node)];
      events.push_back({{"name", node.name},
                        {"cat", node.op},
                        {"ph", "X"},
                        {"ts", event.start_s * 1e6},
                        {"dur", event.duration_s * 1e6},
                        {"pid", p + 1},
                        {"tid", 1}});
    }
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

}  // namespace hexlm
