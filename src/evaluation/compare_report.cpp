#include "evaluation/compare_report.hpp"

#include <cmath>
#include <fmt/format.h>

#include "evaluation/statistics.hpp"

namespace hexlm {
namespace {

constexpr size_t listed_culprits = 10;
constexpr size_t histogram_bins = 24;

/// Infinity (equal values, or none that are numbers) has no spelling in JSON.
Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json layer_json(const NodeDifference& node) {
  return {{"name", node.name},
          {"op", node.op},
          {"cosine", node.local.cosine()},
          {"snr_db", number_or_null(node.local.snr_db())},
          {"max_abs", number_or_null(node.local.max_abs())},
          {"finite", node.local.finite() && node.global.finite()},
          {"expected_snr_db", node.expected_snr_db},
          {"excess_db", number_or_null(node.excess_db())},
          {"global_cosine", node.global.cosine()},
          {"global_snr_db", number_or_null(node.global.snr_db())},
          {"global_max_abs", number_or_null(node.global.max_abs())}};
}

void add_layers(const LayerComparison& layers, Json& json) {
  json["layers"] = Json::array();
  for (const NodeDifference& node : layers.nodes()) {
    if (node.compared) json["layers"].push_back(layer_json(node));
  }
  json["culprits"] = Json::array();
  for (const size_t index : layers.culprits()) {
    if (json["culprits"].size() == listed_culprits) break;
    json["culprits"].push_back(layers.nodes()[index].name);
  }
  const auto first = layers.first_divergence();
  json["first_divergence"] = first ? Json(layers.nodes()[*first].name) : Json(nullptr);
}

std::string text_of(const Tokenizer* tokenizer, int32_t token) {
  if (tokenizer == nullptr || token < 0) return "";
  return tokenizer->decode({&token, 1});
}

Json parting_json(const Parting& parting, const Tokenizer* tokenizer) {
  Json json = {{"compared", parting.compared},
               {"position", parting.position ? Json(*parting.position) : Json(nullptr)}};
  if (!parting.position) return json;
  json["reference_token"] = parting.reference_token;
  json["token"] = parting.token;
  json["reference_text"] = text_of(tokenizer, parting.reference_token);
  json["text"] = text_of(tokenizer, parting.token);
  return json;
}

/// Counts of positions by KL, in bins of equal width of log₁₀ from 1e-8 to 10 nats; the first and last also
/// hold what is beyond.
Json histogram(const std::vector<double>& kl) {
  constexpr double low = -8;
  constexpr double high = 1;
  std::vector<int64_t> counts(histogram_bins, 0);
  for (const double value : kl) {
    const double place = value > 0 ? (std::log10(value) - low) / (high - low) * histogram_bins : 0;
    const double last = histogram_bins - 1;
    ++counts[static_cast<size_t>(place > 0 ? std::min(place, last) : 0)];
  }
  return {{"log10_low", low}, {"log10_high", high}, {"counts", counts}};
}

}  // namespace

std::vector<LimitCheck> check_limits(const CompareResult& result, const CompareLimits& limits) {
  const OutputDifference& outputs = result.outputs;
  std::vector<LimitCheck> checks;
  checks.push_back({"finite", outputs.finite() ? 1.0 : 0.0, 1, outputs.finite()});
  const auto at_most = [&](const char* name, double value, const std::optional<double>& limit) {
    // A value that is no number passes nothing.
    if (limit) checks.push_back({name, value, *limit, value <= *limit});
  };
  const auto at_least = [&](const char* name, double value, const std::optional<double>& limit) {
    if (limit) checks.push_back({name, value, *limit, value >= *limit});
  };
  at_most("perplexity_increase", outputs.perplexity() - outputs.reference_perplexity(),
          limits.max_perplexity_increase);
  at_most("kl_mean", outputs.kl_mean(), limits.max_kl);
  at_least("top1_agreement", outputs.top1_agreement(), limits.min_top1);
  at_least("top5_agreement", outputs.top5_agreement(), limits.min_top5);
  return checks;
}

std::string judge_increase(const OutputDifference& outputs) {
  if (outputs.scored() == 0) return "";
  const double increase = outputs.perplexity() - outputs.reference_perplexity();
  if (!std::isfinite(increase)) return "the model's outputs are no numbers";
  if (increase <= 0.3) return "usual for quantized weights (at most 0.3)";
  if (increase <= 0.5) return "more than usual (0.3)";
  return "a reason to look at the calibration, the codec or the first divergence (above 0.5)";
}

Json compare_json(const CompareResult& result, const std::vector<LimitCheck>& checks,
                  const Tokenizer* tokenizer) {
  const OutputDifference& outputs = result.outputs;
  Json json = {{"tokens", result.tokens},
               {"positions", outputs.positions()},
               {"perplexity_reference", number_or_null(outputs.reference_perplexity())},
               {"perplexity", number_or_null(outputs.perplexity())},
               {"perplexity_increase", number_or_null(outputs.perplexity() - outputs.reference_perplexity())},
               {"perplexity_ratio", number_or_null(outputs.perplexity() / outputs.reference_perplexity())},
               {"kl_mean", number_or_null(outputs.kl_mean())},
               {"kl_p99", number_or_null(quantile(outputs.kl(), 0.99))},
               {"kl_max", number_or_null(outputs.kl_max())},
               {"top1_agreement", outputs.top1_agreement()},
               {"top5_agreement", outputs.top5_agreement()}};
  json["kl_histogram"] = histogram(outputs.kl());
  json["first_divergence"] = nullptr;
  json["culprits"] = Json::array();
  json["layers"] = Json::array();
  if (result.layers) add_layers(*result.layers, json);
  json["greedy"] = result.parting ? parting_json(*result.parting, tokenizer) : Json(nullptr);
  bool passed = true;
  json["checks"] = Json::array();
  for (const LimitCheck& check : checks) {
    passed = passed && check.passed;
    json["checks"].push_back({{"name", check.name},
                              {"value", number_or_null(check.value)},
                              {"limit", check.limit},
                              {"passed", check.passed}});
  }
  json["verdict"] = passed ? "pass" : "fail";
  json["seconds"] = result.seconds;
  json["reference_forward_s"] = result.reference_forward_s;
  json["forward_s"] = result.forward_s;
  return json;
}

}  // namespace hexlm
