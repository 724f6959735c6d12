#include "quantization/activation_flow.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "graph/extract.hpp"

namespace hexlm {

ActivationFlow::ActivationFlow(const Graph& graph, std::shared_ptr<const WeightSource> weights,
                               std::span<const FlowSample> samples, const GraphRunner& runner)
    : graph_(graph),
      weights_(std::make_shared<OverlayWeights>(std::move(weights))),
      samples_(samples),
      runner_(runner) {
  for (const FlowSample& sample : samples) {
    most_.tokens = std::max(most_.tokens, sample.sizes.tokens);
    most_.rows = std::max(most_.rows, sample.sizes.rows);
    most_.patches = std::max(most_.patches, sample.sizes.patches);
  }
}

int64_t ActivationFlow::rows(size_t sample, ValueId value) const {
  return evaluate(graph_.value(value).shape[0], samples_[sample].sizes);
}

int64_t ActivationFlow::most_rows(ValueId value) const {
  return evaluate(graph_.value(value).shape[0], most_);
}

Result<ActivationFlow::Part> ActivationFlow::prepare(const std::vector<ValueId>& from,
                                                     std::span<const ValueId> to) const {
  HEXLM_ASSIGN(Graph extracted, extract(graph_, from, to));
  Part part;
  for (size_t i = from.size(); i < extracted.inputs().size(); ++i) {
    part.inputs_.push_back(extracted.value(extracted.inputs()[i]).name);
  }
  part.from_state_ = !from.empty();
  HEXLM_ASSIGN(part.graph_,
               runner_.prepare(std::make_shared<const Graph>(std::move(extracted)), weights_, most_));
  return part;
}

Status ActivationFlow::run(Part& part, size_t sample, std::span<float* const> outputs) const {
  std::vector<const void*> inputs;
  if (part.from_state_) inputs.push_back(states_[sample].data());
  for (const std::string& name : part.inputs_) {
    const auto& known = samples_[sample].inputs;
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& input) { return input.first == name; });
    if (found == known.end()) {
      return fail(ErrorCode::unsupported, fmt::format("calibration has no data for the input '{}'", name),
                  "use --method mse, which needs no activations");
    }
    inputs.push_back(found->second);
  }
  return part.graph_->run(samples_[sample].sizes, inputs, outputs);
}

Status ActivationFlow::start(ValueId first) {
  HEXLM_ASSIGN(Part part, prepare({}, std::array{first}));
  states_.clear();
  for (size_t i = 0; i < samples_.size(); ++i) {
    std::vector<float> state(static_cast<size_t>(rows(i, first) * width(first)));
    HEXLM_TRY(run(part, i, std::array{state.data()}));
    states_.push_back(std::move(state));
  }
  return {};
}

Status ActivationFlow::advance(ValueId from, ValueId to) {
  HEXLM_ASSIGN(Part part, prepare({from}, std::array{to}));
  std::vector<float> next;
  for (size_t i = 0; i < samples_.size(); ++i) {
    next.resize(static_cast<size_t>(rows(i, to) * width(to)));
    HEXLM_TRY(run(part, i, std::array{next.data()}));
    states_[i].swap(next);
  }
  return {};
}

}  // namespace hexlm
