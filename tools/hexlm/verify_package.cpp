#include "hexlm/verify_package.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <random>
#include <vector>

#include "base/dtype.hpp"
#include "evaluation/logit_difference.hpp"
#include "runtime/model.hpp"
#include "runtime/session.hpp"
#include "runtime/vision_encoder.hpp"

namespace hexlm::tool {
namespace {

constexpr int64_t compared_tokens = 64;

bool is_lossless(const ExportTensor& tensor) {
  if (tensor.codec.kind == Codec::Kind::f32) return true;
  const bool same_half =
      tensor.codec.kind == Codec::Kind::f16 && tensor.source_dtype == to_string(DType::f16);
  const bool same_brain =
      tensor.codec.kind == Codec::Kind::bf16 && tensor.source_dtype == to_string(DType::bf16);
  return same_half || same_brain;
}

/// Allowed ‖difference‖ / ‖logits‖ for the coarsest codec in the package. The comparison catches broken
/// packages, whose logits have nothing to do with the source's and so differ by √2 of their size; it does not
/// judge quality, which `perplexity` does. A weight's own relative error is about 1 % at 8 bits and 10 % at
/// 4, which deep networks of random weights amplify: the random qwen3_5 of the tests is off by 0.96 at 4
/// bits.
double allowance(const ExportPlan& plan, std::string_view file, std::string& codecs) {
  bool lossless = true;
  int bits = 16;
  for (const ExportTensor& tensor : plan.tensors) {
    if (tensor.file != file) continue;
    lossless = lossless && is_lossless(tensor);
    if (!tensor.codec.is_float()) bits = std::min(bits, tensor.codec.bits);
  }
  codecs = lossless ? "lossless" : fmt::format("{} bits", bits);
  if (lossless) return 1e-5;
  return bits >= 8 ? 0.3 : 1.2;
}

std::vector<int32_t> compared_ids(int64_t count, int64_t vocabulary) {
  std::mt19937_64 generator(1);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % static_cast<uint64_t>(vocabulary));
  return ids;
}

Result<std::vector<float>> logits_of(const std::string& folder, int threads, int64_t& tokens) {
  HEXLM_ASSIGN(const auto model, Model::open(folder, {threads, true}));
  HEXLM_TRY(model->verify_vision(threads));
  SessionOptions options;
  options.threads = threads;
  options.precision = Precision::high;
  options.context = std::min(compared_tokens, model->max_context());
  HEXLM_ASSIGN(const auto session, Session::create(model, options));
  tokens = options.context;
  std::vector<float> all;
  const std::vector<int32_t> ids = compared_ids(tokens, model->usable_vocabulary());
  HEXLM_TRY(session->forward(ids, tokens, [&all](int64_t, int64_t, std::span<const float> logits) -> Status {
    all.insert(all.end(), logits.begin(), logits.end());
    return {};
  }));
  return all;
}

/// What the tower makes of a fixed picture.
Result<std::vector<float>> features_of(const std::string& folder, int threads) {
  HEXLM_ASSIGN(auto model, Model::open(folder, {threads, false}));
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

Status compare_features(const ExportOptions& options, const ExportPlan& plan, Verification& verification) {
  std::error_code ignored;
  const bool takes_images =
      std::filesystem::exists(std::filesystem::path(options.package) / "preprocessor_config.json", ignored);
  if (!plan.config.vision || !takes_images) return {};
  std::string codecs;
  verification.vision_allowed = allowance(plan, vision_file, codecs);
  HEXLM_ASSIGN(const std::vector<float> reference, features_of(options.checkpoint, options.threads));
  HEXLM_ASSIGN(const std::vector<float> other, features_of(options.package, options.threads));
  LogitDifference difference;
  difference.add(reference, other);
  verification.finite = verification.finite && difference.finite();
  verification.vision_relative_error = difference.relative_error();
  return {};
}

}  // namespace

Error Verification::error() const {
  if (!finite) return {ErrorCode::verification, "the package's logits are not finite", ""};
  if (relative_error <= allowed_relative_error) {
    return {
        ErrorCode::verification,
        fmt::format("the package's image features differ by {:.3g} from the checkpoint's, {:.3g} is allowed",
                    vision_relative_error.value_or(0), vision_allowed),
        "try a finer codec, such as --vision w8g64"};
  }
  return {ErrorCode::verification,
          fmt::format("the package's logits differ by {:.3g} from the checkpoint's, {:.3g} is allowed ({})",
                      relative_error, allowed_relative_error, codecs),
          "try a finer codec, such as --quant w8g128"};
}

Result<Verification> verify_package(const ExportOptions& options, const ExportPlan& plan) {
  Verification verification;
  verification.allowed_relative_error = allowance(plan, weights_file, verification.codecs);
  HEXLM_ASSIGN(const std::vector<float> reference,
               logits_of(options.checkpoint, options.threads, verification.tokens));
  HEXLM_ASSIGN(const std::vector<float> other,
               logits_of(options.package, options.threads, verification.tokens));
  LogitDifference difference;
  const auto vocabulary = static_cast<size_t>(plan.config.text.vocabulary_size);
  for (size_t begin = 0; begin < reference.size(); begin += vocabulary) {
    difference.add(std::span(reference).subspan(begin, vocabulary),
                   std::span(other).subspan(begin, vocabulary));
  }
  verification.finite = difference.finite();
  verification.relative_error = difference.relative_error();
  verification.kl_mean = difference.kl_mean();
  verification.top1_agreement = difference.top1_agreement();
  HEXLM_TRY(compare_features(options, plan, verification));
  return verification;
}

Json to_json(const Verification& verification) {
  Json json = {{"tokens", verification.tokens},
               {"finite", verification.finite},
               {"relative_error", verification.relative_error},
               {"allowed_relative_error", verification.allowed_relative_error},
               {"kl_mean", verification.kl_mean},
               {"top1_agreement", verification.top1_agreement},
               {"verdict", verification.passed() ? "pass" : "fail"}};
  if (verification.vision_relative_error) {
    json["vision_relative_error"] = *verification.vision_relative_error;
    json["vision_allowed_relative_error"] = verification.vision_allowed;
  }
  return json;
}

std::string describe(const Verification& verification) {
  std::string text = fmt::format(
      "verified: checksums match; {} tokens of logits: relative error {:.3g} (allowed {:.3g}, {}), mean KL "
      "{:.3g}, "
      "top-1 agreement {:.1f} %",
      verification.tokens, verification.relative_error, verification.allowed_relative_error,
      verification.codecs, verification.kl_mean, 100 * verification.top1_agreement);
  if (verification.vision_relative_error) {
    text += fmt::format("; image features: relative error {:.3g} (allowed {:.3g})",
                        *verification.vision_relative_error, verification.vision_allowed);
  }
  return text;
}

}  // namespace hexlm::tool
