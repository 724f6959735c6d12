#include "quantization/codec_choice.hpp"

#include <fmt/format.h>

namespace hexlm {

Result<CodecChoice> choose_codecs(const ExportOptions& options, bool tied) {
  std::vector<std::optional<Codec>> codecs = {options.linear, options.lm_head, options.embedding,
                                              options.vision};
  for (const RecipeRule& rule : options.recipe.rules) codecs.emplace_back(rule.codec);
  for (const auto& codec : codecs) {
    if (!codec || !codec->wide_scales) continue;
    return fail(ErrorCode::unsupported,
                fmt::format("{}: fp32 scales come from imported weights only", to_string(*codec)),
                "leave out the suffix :f32");
  }
  CodecChoice choice;
  choice.linear = options.linear.value_or(choice.linear);
  choice.vision = options.vision.value_or(choice.vision);
  if (!tied) {
    choice.lm_head = options.lm_head.value_or(choice.lm_head);
    choice.embedding = options.embedding.value_or(choice.embedding);
    return choice;
  }
  if (options.lm_head && options.embedding && *options.lm_head != *options.embedding) {
    return fail(
        ErrorCode::usage,
        fmt::format("{}: embedding and lm_head are one tied tensor, got --embedding {} and --lm-head {}",
                    options.checkpoint, to_string(*options.embedding), to_string(*options.lm_head)),
        "give one of the two, or the same codec for both");
  }
  choice.embedding = options.lm_head ? *options.lm_head : options.embedding.value_or(choice.embedding);
  choice.lm_head = choice.embedding;
  return choice;
}

Codec codec_for(ParameterRole role, DType source, const CodecChoice& choice) {
  switch (role) {
    case ParameterRole::linear:
      return choice.linear;
    case ParameterRole::lm_head:
      return choice.lm_head;
    case ParameterRole::embedding:
      return choice.embedding;
    case ParameterRole::vector:
      return Codec{};
    case ParameterRole::vision:
      return choice.vision;
    case ParameterRole::sensitive:
      break;
  }
  if (source == DType::f16) return {Codec::Kind::f16, 16, 0, true};
  if (source == DType::bf16) return {Codec::Kind::bf16, 16, 0, true};
  return Codec{};
}

std::string describe_fit(const Codec& codec, int64_t columns) {
  if (codec.is_float() || codec.group == 0 || columns % codec.group == 0) return {};
  if (columns < codec.group)
    return fmt::format("one group a row: {} columns, group {}", columns, codec.group);
  return fmt::format("last group of {}: {} columns, group {}", columns % codec.group, columns, codec.group);
}

}  // namespace hexlm
