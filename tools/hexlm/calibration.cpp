#include "hexlm/calibration.hpp"

#include <fmt/format.h>

#include "base/log.hpp"
#include "hexlm/common.hpp"
#include "runtime/model.hpp"
#include "runtime/vision_encoder.hpp"

namespace hexlm::tool {

Result<std::optional<CalibrationSet>> read_calibration(const Arguments& arguments,
                                                       const std::string& checkpoint) {
  CalibrationOptions options;
  options.files = arguments.texts("calibration");
  if (options.files.empty()) return std::optional<CalibrationSet>();
  options.samples = arguments.integer("calibration-samples");
  options.tokens = arguments.integer("calibration-tokens");
  options.seed = static_cast<uint64_t>(arguments.integer("seed"));
  HEXLM_ASSIGN(CalibrationSet set, load_samples(std::move(options), checkpoint, arguments.threads()));
  return std::optional<CalibrationSet>(std::move(set));
}

Result<CalibrationSet> load_samples(CalibrationOptions options, const std::string& checkpoint, int threads) {
  HEXLM_ASSIGN(const auto model, Model::open(checkpoint, {threads, false, {}}));
  if (model->tokenizer() == nullptr) {
    return fail(ErrorCode::bad_input, fmt::format("{} has no tokenizer.json to calibrate with", checkpoint),
                "copy the tokenizer of the model's family into the folder");
  }
  options.tokens = std::min(options.tokens, model->max_context());
  CalibrationTokenizer tokenizer{model->tokenizer(), model->chat_template(), model->special_tokens()};
  std::unique_ptr<VisionEncoder> encoder;  // for its preprocessor
  if (model->vision_graph() != nullptr) {
    HEXLM_ASSIGN(encoder, VisionEncoder::create(model, {}));
    tokenizer.preprocessor = &encoder->preprocessor();
    tokenizer.image_token = model->config().vision->image_token;
  }
  HEXLM_ASSIGN(CalibrationSet set, load_calibration(options, tokenizer));
  for (const CalibrationShare& share : set.shares) {
    note(fmt::format("calibration: {} of {} samples of {} text in {}", share.taken, share.available,
                     to_string(share.script), share.file));
  }
  note(fmt::format("calibration: {} samples of {} to {} tokens, {} together", set.sequences.size(),
                   set.shortest, set.longest, set.tokens));
  if (!set.images.empty()) note(fmt::format("calibration: {} images", set.images.size()));
  for (const std::string& warning : set.warnings) note("warning: " + warning);
  return set;
}

Json to_json(const CalibrationSet& set) {
  if (!set.saved_record.is_null()) return set.saved_record;
  Json shares = Json::array();
  for (const CalibrationShare& share : set.shares) {
    shares.push_back({{"file", share.file},
                      {"script", to_string(share.script)},
                      {"available", share.available},
                      {"taken", share.taken}});
  }
  return {{"samples", set.sequences.size()}, {"tokens", set.tokens},        {"shortest", set.shortest},
          {"longest", set.longest},          {"images", set.images.size()}, {"shares", shares},
          {"warnings", set.warnings}};
}

}  // namespace hexlm::tool
