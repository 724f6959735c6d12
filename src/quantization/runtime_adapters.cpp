#include "quantization/runtime_adapters.hpp"

#include <cmath>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "quantization/low_rank.hpp"
#include "quantization/quantizer.hpp"

namespace hexlm {
namespace {

constexpr const char* merge_hint = "merge the adapter: `hexlm merge`, or `hexlm export --adapter`";

class UpdateBuilder {
 public:
  UpdateBuilder(const Graph& graph, const WeightSource& weights) : weights_(weights) {
    for (const Node& node : graph.nodes()) {
      for (const ParameterId id : node.parameters) readers_[graph.parameter(id).name] = &node;
      if (std::holds_alternative<op::Linear>(node.op)) {
        linears_[node.name] = graph.parameter(node.parameters[0]).name;
      }
    }
  }

  Status add(const AppliedAdapter& applied) {
    const Adapter& adapter = *applied.adapter;
    folder_ = adapter.folder();
    if (!adapter.replacements().empty()) {
      return unsupported(fmt::format("'{}' replaces a whole parameter, which can't be switched at run time",
                                     adapter.replacements().begin()->first));
    }
    if (adapter.transposed()) return unsupported("fan_in_fan_out can't be applied at run time");
    for (const auto& [name, module] : adapter.modules()) {
      HEXLM_TRY(check(adapter, name, module, applied.weight));
      HEXLM_TRY(stack(name, module, applied.weight * module.scaling));
    }
    return {};
  }

  std::vector<LowRankUpdate> finish() && {
    std::vector<LowRankUpdate> all;
    all.reserve(updates_.size());
    for (auto& [name, update] : updates_) all.push_back(std::move(update));
    return all;
  }

 private:
  tl::unexpected<Error> unsupported(const std::string& what) const {
    return fail(ErrorCode::unsupported, fmt::format("{}: {}", folder_, what), merge_hint);
  }

  Status check(const Adapter& adapter, const std::string& name, const AdapterModule& module, double weight) {
    const auto linear = linears_.find(name);
    if (linear == linears_.end()) {
      if (module.embedding || readers_.contains(name + ".weight")) {
        return unsupported(
            fmt::format("module '{}' is no plain linear; only those are adapted at run time", module.path));
      }
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: module '{}' is not in {}", folder_, module.path, weights_.origin()),
                  adapter.base_model().empty()
                      ? "the adapter belongs to another base model"
                      : fmt::format("the adapter was made for '{}'", adapter.base_model()));
    }
    if (module.bias) return unsupported(fmt::format("module '{}' adds to a bias", module.path));
    HEXLM_ASSIGN(const WeightView view, weights_.describe(linear->second));
    const std::vector<int64_t> shape = {module.up.shape[0], module.down.shape[1]};
    if (view.shape != shape) {
      return fail(
          ErrorCode::bad_input,
          fmt::format("{}: module '{}' updates a weight of shape {}, '{}' in {} has {}", folder_, module.path,
                      format_shape(shape), linear->second, weights_.origin(), format_shape(view.shape)),
          "the adapter belongs to another base model");
    }
    const auto former = updates_.find(name);
    const bool stacked = former != updates_.end();
    if (module.magnitude && weight != 1) {
      return unsupported(
          fmt::format("module '{}' uses DoRA, which has no result at weight {}", module.path, weight));
    }
    if (stacked && (module.magnitude || !former->second.gain.empty())) {
      return unsupported(
          fmt::format("module '{}' is changed by two adapters, one of which is DoRA", module.path));
    }
    return {};
  }

  Status stack(const std::string& name, const AdapterModule& module, double scale) {
    const LowRankProduct product = low_rank_product(module, false);
    LowRankUpdate& update = updates_[name];
    update.node = name;
    update.outputs = product.rows;
    update.inputs = product.columns;
    update.rank += product.rank;
    update.down.insert(update.down.end(), product.right.begin(), product.right.end());
    for (int64_t k = 0; k < product.rank; ++k) {
      for (int64_t o = 0; o < product.rows; ++o) {
        const float up = product.left[static_cast<size_t>(o * product.rank + k)];
        update.up.push_back(static_cast<float>(scale * up));
      }
    }
    return module.magnitude ? set_gain(update, product, scale, tensor_floats(*module.magnitude)) : Status();
  }

  /// m / ‖W + scale · B·A‖ by rows.
  Status set_gain(LowRankUpdate& update, const LowRankProduct& product, double scale,
                  const std::vector<float>& magnitudes) {
    HEXLM_ASSIGN(const WeightView view, weights_.find(linears_.at(update.node)));
    std::vector<double> sums(static_cast<size_t>(product.columns));
    for (int64_t row = 0; row < product.rows; ++row) {
      const std::vector<float> base = decode_rows(view, row, row + 1);
      std::copy(base.begin(), base.end(), sums.begin());
      add_product_row(product, scale, row, sums);
      double squares = 0;
      for (const double sum : sums) squares += sum * sum;
      update.gain.push_back(static_cast<float>(magnitudes[static_cast<size_t>(row)] / std::sqrt(squares)));
    }
    return {};
  }

  const WeightSource& weights_;
  std::map<std::string, const Node*, std::less<>> readers_;    // by parameter
  std::map<std::string, std::string, std::less<>> linears_;    // node to weight
  std::map<std::string, LowRankUpdate, std::less<>> updates_;  // by node
  std::string folder_;
};

}  // namespace

Result<std::vector<LowRankUpdate>> runtime_updates(const std::vector<AppliedAdapter>& adapters,
                                                   const Graph& graph, const WeightSource& weights) {
  UpdateBuilder builder(graph, weights);
  for (const AppliedAdapter& applied : adapters) HEXLM_TRY(builder.add(applied));
  return std::move(builder).finish();
}

Result<std::vector<LowRankUpdate>> open_runtime_updates(const std::vector<AdapterChoice>& choices,
                                                        const Graph& graph, const WeightSource& weights) {
  std::vector<AppliedAdapter> adapters;
  for (const AdapterChoice& choice : choices) {
    HEXLM_ASSIGN(std::shared_ptr<const Adapter> adapter, Adapter::open(choice.folder));
    adapters.push_back({std::move(adapter), choice.weight});
  }
  return runtime_updates(adapters, graph, weights);
}

}  // namespace hexlm
