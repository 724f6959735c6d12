#include "hexlm/images.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "hexlm/common.hpp"

namespace hexlm::tool {
namespace {

/// What is wrong with an image's size is told without its name.
Error with_file(Error error, const std::string& file) {
  const bool named = error.message.find(file) != std::string::npos;
  if (error.code == ErrorCode::bad_input && !named)
    error.message = fmt::format("{}: {}", file, error.message);
  return error;
}

}  // namespace

Images::Images(const Arguments& arguments, std::shared_ptr<const Model> model) : model_(std::move(model)) {
  const SessionOptions session = session_options(arguments);
  options_.backend = session.backend;
  options_.threads = session.threads;
  options_.processors = session.processors;
  options_.precision = session.precision;
  options_.max_pixels = arguments.integer("image-max-pixels");
  options_.verify = !arguments.toggle("no-verify");
}

Result<VisionEncoder*> Images::encoder() {
  if (encoder_ == nullptr) {
    auto made = VisionEncoder::create(model_, options_);
    if (!made) {
      Error error = made.error();
      if (error.code == ErrorCode::usage && error.hint.empty()) error.hint = "raise --image-max-pixels";
      return tl::unexpected<Error>(std::move(error));
    }
    encoder_ = *std::move(made);
  }
  return encoder_.get();
}

Result<ImageList> Images::encode(const std::vector<std::string>& files) {
  ImageList list;
  if (files.empty()) return list;
  HEXLM_ASSIGN(VisionEncoder* const encoder, encoder());
  for (const std::string& file : files) {
    if (file.empty()) return fail(ErrorCode::bad_input, "an image has an empty file name", "name a file");
    auto encoded = encoder->encode_file(file);
    if (!encoded) return tl::unexpected<Error>(with_file(encoded.error(), file));
    const std::shared_ptr<const ImageFeatures> features = *std::move(encoded);
    const ImageGrid& grid = features->grid;
    listed_.push_back({{"file", file}, {"tokens", features->tokens}, {"grid_thw", {grid.t, grid.h, grid.w}}});
    list.push_back(features);
  }
  return list;
}

Result<ImageList> Images::encode(const UserMessage& message) {
  Result<ImageList> list = encode(message.images);
  if (list || !message.names_images) return list;
  Error error = list.error();
  error.hint += error.hint.empty() ? "" : "; ";
  error.hint += "with --no-inline-images, <img>FILE</img> in a prompt is text";
  return tl::unexpected<Error>(std::move(error));
}

void Images::release() {
  timings_ = timings();
  if (encoder_ != nullptr) placement_ = encoder_->placement();
  encoder_.reset();
}

VisionTimings Images::timings() const { return encoder_ == nullptr ? timings_ : encoder_->timings(); }

std::string Images::placement(const Session& session) const {
  const std::string tower = encoder_ == nullptr ? placement_ : encoder_->placement();
  return tower.empty() ? session.placement() : fmt::format("{}; vision {}", session.placement(), tower);
}

Result<Prompt> prompt_of_ids(const Model& model, const std::vector<int32_t>& ids, ImageList images) {
  if (images.empty()) return Prompt{ids, {}};
  const int32_t image_token = model.config().vision->image_token;
  const int64_t given = std::count(ids.begin(), ids.end(), image_token);
  int64_t expanded = 0;
  for (const auto& image : images) expanded += image->tokens;
  if (given == expanded) return Prompt{ids, std::move(images)};
  if (std::cmp_equal(given, images.size())) return make_prompt(model, ids, std::move(images));
  return fail(
      ErrorCode::bad_input,
      fmt::format("the ids hold the image token {} {} time(s), expected {} (one an image) or {} (one for "
                  "each of their tokens)",
                  image_token, given, images.size(), expanded),
      "give an --image for each place, in order");
}

Json timings_json(const VisionTimings& timings) {
  return {
      {"load_s", timings.load_s},   {"decode_s", timings.decode_s}, {"preprocess_s", timings.preprocess_s},
      {"tower_s", timings.tower_s}, {"images", timings.images},     {"cache_hits", timings.cache_hits}};
}

std::string describe(const VisionTimings& timings) {
  const std::string cached =
      timings.cache_hits == 0 ? std::string() : fmt::format(" ({} from the cache)", timings.cache_hits);
  return fmt::format(
      "vision: load {:.3f} s; {} image(s){}: decode {:.3f} s, preprocess {:.3f} s, tower {:.3f} s",
      timings.load_s, timings.images, cached, timings.decode_s, timings.preprocess_s, timings.tower_s);
}

VisionTimings operator-(const VisionTimings& now, const VisionTimings& before) {
  VisionTimings difference;
  difference.load_s = now.load_s - before.load_s;
  difference.decode_s = now.decode_s - before.decode_s;
  difference.preprocess_s = now.preprocess_s - before.preprocess_s;
  difference.tower_s = now.tower_s - before.tower_s;
  difference.images = now.images - before.images;
  difference.cache_hits = now.cache_hits - before.cache_hits;
  return difference;
}

}  // namespace hexlm::tool
