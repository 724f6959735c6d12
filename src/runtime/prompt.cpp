#include "runtime/prompt.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "vision/positions.hpp"

namespace hexlm {
namespace {

/// Where images begin and end among a prompt's tokens.
struct ImagePlaces {
  struct Place {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Place> places;

  ImagePlaces(const Prompt& prompt, int32_t image_token) {
    const auto count = static_cast<int64_t>(prompt.tokens.size());
    int64_t at = 0;
    for (const auto& image : prompt.images) {
      while (at < count && prompt.tokens[static_cast<size_t>(at)] != image_token) ++at;
      places.push_back({at, at + image->tokens});
      at += image->tokens;
    }
  }
};

}  // namespace

Result<Prompt> make_prompt(const Model& model, std::span<const int32_t> tokens,
                           std::vector<std::shared_ptr<const ImageFeatures>> images) {
  Prompt prompt;
  prompt.images = std::move(images);
  const std::optional<VisionConfig>& vision = model.config().vision;
  if (!vision) {
    if (!prompt.images.empty()) return tl::unexpected<Error>(no_vision(model));
    prompt.tokens.assign(tokens.begin(), tokens.end());
    return prompt;
  }
  std::vector<ImageGrid> grids;
  grids.reserve(prompt.images.size());
  for (const auto& image : prompt.images) grids.push_back(image->grid);
  HEXLM_ASSIGN(prompt.tokens, expand_image_placeholders(tokens, vision->image_token, grids,
                                                        static_cast<int>(vision->merge_size)));
  return prompt;
}

int64_t whole_prefix(const Prompt& prompt, int64_t count, int32_t image_token) {
  for (const auto& [begin, end] : ImagePlaces(prompt, image_token).places) {
    if (begin < count && count < end) return begin;
  }
  return count;
}

Result<Prompt> drop_prefix(const Prompt& prompt, int64_t count, int32_t image_token) {
  const auto total = static_cast<int64_t>(prompt.tokens.size());
  if (count < 0 || count > total) {
    return fail(ErrorCode::usage, fmt::format("{} tokens to drop from a prompt of {} tokens", count, total));
  }
  Prompt rest;
  rest.tokens.assign(prompt.tokens.begin() + count, prompt.tokens.end());
  const ImagePlaces images(prompt, image_token);
  for (size_t i = 0; i < prompt.images.size(); ++i) {
    if (images.places[i].begin >= count) rest.images.push_back(prompt.images[i]);
    if (images.places[i].begin < count && images.places[i].end > count) {
      return fail(ErrorCode::usage, fmt::format("{} tokens of a prompt end inside image {}", count, i + 1));
    }
  }
  return rest;
}

Result<Prompt> take_prefix(const Prompt& prompt, int64_t count, int32_t image_token) {
  HEXLM_ASSIGN(const Prompt rest, drop_prefix(prompt, count, image_token));
  Prompt head;
  head.tokens.assign(prompt.tokens.begin(), prompt.tokens.begin() + count);
  head.images.assign(prompt.images.begin(),
                     prompt.images.end() - static_cast<std::ptrdiff_t>(rest.images.size()));
  return head;
}

int64_t common_prefix(const Prompt& a, const Prompt& b, int32_t image_token) {
  const size_t shorter = std::min(a.tokens.size(), b.tokens.size());
  const auto end = a.tokens.begin() + static_cast<std::ptrdiff_t>(shorter);
  int64_t count = std::mismatch(a.tokens.begin(), end, b.tokens.begin()).first - a.tokens.begin();
  // Up to here both have image tokens at the same places, but not necessarily of the same images.
  const ImagePlaces places(b, image_token);
  for (size_t i = 0; i < b.images.size() && places.places[i].begin < count; ++i) {
    if (i < a.images.size() && a.images[i] == b.images[i]) continue;
    count = places.places[i].begin;
  }
  return std::min(whole_prefix(a, count, image_token), whole_prefix(b, count, image_token));
}

Error no_vision(const Model& model) {
  return {ErrorCode::unsupported,
          fmt::format("{}: the {} model takes no images", model.folder(), model.config().model_type),
          "use a vision-language model, exported with its vision tower"};
}

}  // namespace hexlm
