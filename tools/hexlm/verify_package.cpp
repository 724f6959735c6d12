#include "hexlm/verify_package.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <random>
#include <vector>

#include "base/dtype.hpp"
#include "evaluation/logit_difference.hpp"
#include "runtime/model.hpp"
#include "runtime/session.hpp"

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
void set_allowance(const ExportPlan& plan, Verification& verification) {
  bool lossless = true;
  int bits = 16;
  for (const ExportTensor& tensor : plan.tensors) {
    lossless = lossless && is_lossless(tensor);
    if (!tensor.codec.is_float()) bits = std::min(bits, tensor.codec.bits);
  }
  verification.codecs = lossless ? "lossless" : fmt::format("{} bits", bits);
  if (lossless) {
    verification.allowed_relative_error = 1e-5;
  } else {
    verification.allowed_relative_error = bits >= 8 ? 0.3 : 1.2;
  }
}

std::vector<int32_t> compared_ids(int64_t count, int64_t vocabulary) {
  std::mt19937_64 generator(1);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % static_cast<uint64_t>(vocabulary));
  return ids;
}

Result<std::vector<float>> logits_of(const std::string& folder, const std::vector<AdapterChoice>& adapters,
                                     int threads, int64_t& tokens) {
  HEXLM_ASSIGN(const auto model, Model::open(folder, {threads, true, adapters}));
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

}  // namespace

Error Verification::error() const {
  if (!finite) return {ErrorCode::verification, "the package's logits are not finite", ""};
  return {ErrorCode::verification,
          fmt::format("the package's logits differ by {:.3g} from the checkpoint's, {:.3g} is allowed ({})",
                      relative_error, allowed_relative_error, codecs),
          "try a finer codec, such as --quant w8g128"};
}

Result<Verification> verify_package(const ExportOptions& options, const ExportPlan& plan) {
  Verification verification;
  set_allowance(plan, verification);
  HEXLM_ASSIGN(const std::vector<float> reference,
               logits_of(options.checkpoint, options.adapters, options.threads, verification.tokens));
  HEXLM_ASSIGN(const std::vector<float> other,
               logits_of(options.package, {}, options.threads, verification.tokens));
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
  return verification;
}

Json to_json(const Verification& verification) {
  return {{"tokens", verification.tokens},
          {"finite", verification.finite},
          {"relative_error", verification.relative_error},
          {"allowed_relative_error", verification.allowed_relative_error},
          {"kl_mean", verification.kl_mean},
          {"top1_agreement", verification.top1_agreement},
          {"verdict", verification.passed() ? "pass" : "fail"}};
}

std::string describe(const Verification& verification) {
  return fmt::format(
      "verified: checksums match; {} tokens of logits: relative error {:.3g} (allowed {:.3g}, {}), mean KL "
      "{:.3g}, "
      "top-1 agreement {:.1f} %",
      verification.tokens, verification.relative_error, verification.allowed_relative_error,
      verification.codecs, verification.kl_mean, 100 * verification.top1_agreement);
}

}  // namespace hexlm::tool
