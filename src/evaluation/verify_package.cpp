#include "evaluation/verify_package.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <numeric>
#include <random>
#include <vector>

#include "backends/exact/double_executor.hpp"
#include "evaluation/logit_difference.hpp"
#include "evaluation/stored_weights.hpp"
#include "quantization/source_model.hpp"
#include "runtime/model.hpp"
#include "runtime/session.hpp"
#include "runtime/vision_encoder.hpp"

namespace hexlm {
namespace {

constexpr int64_t compared_tokens = 64;
/// Precision high differs from exact arithmetic by the rounding of float32: below 1e-5 on the references that
/// are well-conditioned and 3e-5 on the one that is not (tests/backends/golden_test.cpp). A wrong scale,
/// kernel or tensor is off by 1e-2 and more.
constexpr double allowed_error = 1e-4;
/// Below this share of equal best tokens a package hardly speaks its source's language.
constexpr double least_agreement = 0.5;

std::vector<int32_t> compared_ids(int64_t count, int64_t vocabulary) {
  std::mt19937_64 generator(1);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % static_cast<uint64_t>(vocabulary));
  return ids;
}

/// The package as it runs.
Result<std::vector<float>> run_package(const std::shared_ptr<const Model>& model,
                                       const std::vector<int32_t>& ids, int threads) {
  SessionOptions options;
  options.threads = threads;
  options.precision = Precision::high;
  options.context = static_cast<int64_t>(ids.size());
  HEXLM_ASSIGN(const auto session, Session::create(model, options));
  std::vector<float> all;
  HEXLM_TRY(session->forward(ids, options.context,
                             [&all](int64_t, int64_t, std::span<const float> logits) -> Status {
                               all.insert(all.end(), logits.begin(), logits.end());
                               return {};
                             }));
  return all;
}

/// What a text of these tokens gives to a graph: no images.
std::vector<std::vector<double>> text_inputs(const Graph& graph, const std::vector<int32_t>& ids) {
  std::vector<double> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0.0);
  std::vector<double> positions;
  for (int stream = 0; stream < 3; ++stream) positions.insert(positions.end(), rows.begin(), rows.end());
  std::vector<std::vector<double>> inputs = {{ids.begin(), ids.end()}, std::move(positions), std::move(rows)};
  for (size_t i = inputs.size(); i < graph.inputs().size(); ++i) {
    const bool index = graph.value(graph.inputs()[i]).dtype == DType::i32;
    inputs.emplace_back(index ? ids.size() : 0, -1.0);
  }
  return inputs;
}

/// The graph in double precision on any weights of its shapes.
Result<std::vector<float>> run_exactly(const Graph& graph, const WeightSource& weights,
                                       const std::vector<int32_t>& ids, int threads) {
  SymbolValues symbols;
  symbols.tokens = symbols.rows = static_cast<int64_t>(ids.size());
  DoubleExecutor executor(graph, weights, {threads, false});
  HEXLM_TRY(executor.run(symbols, text_inputs(graph, ids)));
  return executor.value(graph.outputs()[0]);
}

LogitDifference difference_of(const std::vector<float>& reference, const std::vector<float>& other,
                              size_t vocabulary) {
  LogitDifference difference;
  for (size_t begin = 0; begin < reference.size(); begin += vocabulary) {
    difference.add(std::span(reference).subspan(begin, vocabulary),
                   std::span(other).subspan(begin, vocabulary));
  }
  return difference;
}

/// What the tower makes of a fixed picture.
Result<std::vector<float>> features_of(std::shared_ptr<const Model> model, int threads) {
  VisionOptions options;
  options.threads = threads;
  options.precision = Precision::high;
  HEXLM_ASSIGN(const auto encoder, VisionEncoder::create(std::move(model), options));
  const int side = 2 * encoder->preprocessor().factor();
  Image image{side, side, std::vector<uint8_t>(static_cast<size_t>(3) * side * side)};
  std::mt19937 generator(1);
  for (uint8_t& value : image.rgb) value = static_cast<uint8_t>(generator());
  HEXLM_ASSIGN(const auto features, encoder->encode_image(image));
  return features->features;
}

Status compare_features(const std::shared_ptr<const Model>& model, const std::string& checkpoint,
                        const std::vector<AdapterChoice>& adapters, bool rotated, int threads,
                        Verification& verification) {
  std::error_code ignored;
  const bool takes_images =
      std::filesystem::exists(std::filesystem::path(model->folder()) / "preprocessor_config.json", ignored);
  if (model->vision_graph() == nullptr || !takes_images) return {};
  HEXLM_ASSIGN(const auto source, Model::open(checkpoint, {threads, false, adapters, rotated}));
  HEXLM_ASSIGN(const std::vector<float> reference, features_of(source, threads));
  HEXLM_ASSIGN(const std::vector<float> other, features_of(model, threads));
  LogitDifference difference;
  difference.add(reference, other);
  verification.finite = verification.finite && difference.finite();
  verification.vision_relative_error = difference.relative_error();
  return {};
}

bool rounds_to_nearest(const Manifest& manifest) {
  const auto method = manifest.provenance.find("method");
  return method != manifest.provenance.end() && *method == "rtn";
}

}  // namespace

Error Verification::error() const {
  if (!finite) {
    return {ErrorCode::verification, "the package's logits or image features are not finite",
            "export the package again"};
  }
  return {ErrorCode::verification,
          fmt::format("the package's logits are {:.3g} off what its stored weights give, {:.1g} is allowed",
                      execution_error, allowed_execution_error),
          "try HEXLM_ISA=scalar: if that passes, a kernel is wrong on this processor, and please report it"};
}

std::string Verification::warning() const {
  if (top1_agreement >= least_agreement) return {};
  return fmt::format(
      "the package agrees with its source on {:.1f} % of the next tokens: try a finer codec, such as "
      "--quant w4g64 or w8g128",
      100 * top1_agreement);
}

Result<Verification> verify_package(const std::string& checkpoint, const std::vector<AdapterChoice>& adapters,
                                    const std::string& package, int threads, bool rotated) {
  HEXLM_ASSIGN(const auto model, Model::open(package, {threads, true, {}}));
  HEXLM_TRY(model->verify_vision(threads));
  HEXLM_ASSIGN(const SourceModel source, open_source_model(checkpoint, adapters, rotated));
  Verification verification;
  if (model->is_package() && rounds_to_nearest(model->package()->manifest())) {
    HEXLM_TRY(check_stored_weights(*model->package(), *source.weights, threads));
    verification.weights_compared = true;
  }
  verification.tokens = std::min(compared_tokens, model->max_context());
  verification.allowed_execution_error = allowed_error;
  const std::vector<int32_t> ids = compared_ids(verification.tokens, model->usable_vocabulary());
  const auto vocabulary = static_cast<size_t>(model->config().text.vocabulary_size);
  HEXLM_ASSIGN(const std::vector<float> logits, run_package(model, ids, threads));
  {
    HEXLM_ASSIGN(const std::vector<float> exact,
                 run_exactly(*model->graph(), *model->weights(), ids, threads));
    const LogitDifference execution = difference_of(exact, logits, vocabulary);
    verification.finite = execution.finite();
    verification.execution_error = execution.relative_error();
  }
  // Not what was turned: a fault of the rotation is to be seen.
  HEXLM_ASSIGN(const SourceModel plain, open_source_model(checkpoint, adapters));
  HEXLM_ASSIGN(const Graph own, build_text_graph(plain.config));
  HEXLM_ASSIGN(const std::vector<float> original, run_exactly(own, *plain.weights, ids, threads));
  const LogitDifference distance = difference_of(original, logits, vocabulary);
  verification.relative_error = distance.relative_error();
  verification.kl_mean = distance.kl_mean();
  verification.top1_agreement = distance.top1_agreement();
  HEXLM_TRY(compare_features(model, checkpoint, adapters, rotated, threads, verification));
  return verification;
}

Json to_json(const Verification& verification) {
  Json json = {{"tokens", verification.tokens},
               {"finite", verification.finite},
               {"weights_compared", verification.weights_compared},
               {"execution_error", verification.execution_error},
               {"allowed_execution_error", verification.allowed_execution_error},
               {"relative_error", verification.relative_error},
               {"kl_mean", verification.kl_mean},
               {"top1_agreement", verification.top1_agreement},
               {"verdict", verification.passed() ? "pass" : "fail"}};
  if (verification.vision_relative_error) {
    json["vision_relative_error"] = *verification.vision_relative_error;
  }
  return json;
}

std::string describe(const Verification& verification) {
  std::string text = fmt::format(
      "verified: checksums match{}; logits of {} tokens are {:.2g} off what the stored weights give ({:.1g} "
      "allowed)\n"
      "against the checkpoint: relative error {:.3g}, mean KL {:.3g}, top-1 agreement {:.1f} %",
      verification.weights_compared ? ", every stored value is what the checkpoint gives" : "",
      verification.tokens, verification.execution_error, verification.allowed_execution_error,
      verification.relative_error, verification.kl_mean, 100 * verification.top1_agreement);
  if (verification.vision_relative_error) {
    text += fmt::format(", image features {:.3g} off", *verification.vision_relative_error);
  }
  return text;
}

}  // namespace hexlm
