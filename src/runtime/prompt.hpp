#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "runtime/model.hpp"
#include "vision/preprocess.hpp"

namespace hexlm {

/// One image as the language model sees it: what its vision tower makes of it.
struct ImageFeatures {
  ImageGrid grid;               ///< in patches
  int64_t tokens = 0;           ///< merged cells: image tokens of the prompt
  int64_t width = 0;            ///< the language model's hidden size
  std::vector<float> features;  ///< [tokens, width], takes the place of the image tokens' embeddings
  /// Each [tokens, width]: level i is added to the hidden state after decoder layer i (Qwen3-VL).
  std::vector<std::vector<float>> deepstack;
};

/// A piece of conversation: tokens, and the images that its image tokens stand for.
struct Prompt {
  /// With as many image tokens as each image has, see `make_prompt`.
  std::vector<int32_t> tokens;
  /// In the order of their tokens.
  std::vector<std::shared_ptr<const ImageFeatures>> images;
};

/// A prompt of `tokens` that hold one image token (`ModelConfig::vision->image_token`, what a chat template
/// writes) for each of `images`, in order; each is repeated as often as its image has tokens. Errors:
/// bad_input, naming both numbers, when the prompt has more or fewer placeholders than there are images;
/// unsupported for images with a model that sees none.
Result<Prompt> make_prompt(const Model& model, std::span<const int32_t> tokens,
                           std::vector<std::shared_ptr<const ImageFeatures>> images);

/// `prompt` without its first `count` tokens and the images that lie wholly in them: what is left to run when
/// a session holds the beginning already. Errors: usage when `count` lies inside an image (`whole_prefix`
/// says where to cut instead) or beyond the end.
Result<Prompt> drop_prefix(const Prompt& prompt, int64_t count, int32_t image_token);
/// The greatest length of at most `count` tokens that does not cut an image of `prompt`.
int64_t whole_prefix(const Prompt& prompt, int64_t count, int32_t image_token);
/// The first `count` tokens of `prompt` and the images that lie wholly in them: drop_prefix's counterpart,
/// with its errors.
Result<Prompt> take_prefix(const Prompt& prompt, int64_t count, int32_t image_token);
/// The number of tokens that two prompts begin with alike: same ids, same images. It never cuts an image.
int64_t common_prefix(const Prompt& a, const Prompt& b, int32_t image_token);

/// What to say when images come to a model without a vision tower: unsupported, naming it.
Error no_vision(const Model& model);

}  // namespace hexlm
