#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "hexlm/arguments.hpp"
#include "hexlm/user_message.hpp"
#include "runtime/model.hpp"
#include "runtime/prompt.hpp"
#include "runtime/session.hpp"
#include "runtime/vision_encoder.hpp"

namespace hexlm::tool {

using ImageList = std::vector<std::shared_ptr<const ImageFeatures>>;

/// The images of one command. A command without images makes no encoder and reads no vision weights.
class Images {
 public:
  /// Takes backend, threads, precision and --image-max-pixels from the flags.
  Images(const Arguments& arguments, std::shared_ptr<const Model> model);

  /// Features of files, in order; the same content is encoded once. Errors: unsupported for a model that sees
  /// no images, before a file is looked at; those of VisionEncoder::encode_file.
  Result<ImageList> encode(const std::vector<std::string>& files);
  /// Those of a message; an error about a file that the text names says how to keep the text as it is.
  Result<ImageList> encode(const UserMessage& message);
  /// The encoder, made when it is first wanted. Errors: those of VisionEncoder::create.
  Result<VisionEncoder*> encoder();
  /// Frees the tower when no more images will come; what it has measured stays.
  void release();

  VisionTimings timings() const;
  /// "cpu 166/166 nodes", and where an image was encoded "; vision cpu 81/81 nodes".
  std::string placement(const Session& session) const;
  /// [{file, tokens, grid_thw}] of every image asked for.
  const Json& listed() const { return listed_; }

 private:
  std::shared_ptr<const Model> model_;
  VisionOptions options_;
  std::unique_ptr<VisionEncoder> encoder_;
  VisionTimings timings_;
  std::string placement_;
  Json listed_ = Json::array();
};

/// A prompt of given token ids. They hold one image token an image, or as many as each image has tokens (as
/// transformers' processor writes them). Without images they are run as they are. Errors: bad_input, naming
/// both numbers, when the ids fit neither.
Result<Prompt> prompt_of_ids(const Model& model, const std::vector<int32_t>& ids, ImageList images);

/// {load_s, decode_s, preprocess_s, tower_s, images, cache_hits}
Json timings_json(const VisionTimings& timings);
/// "vision load 0.02 s; 2 images (1 from the cache): decode …, preprocess …, tower …"
std::string describe(const VisionTimings& timings);
VisionTimings operator-(const VisionTimings& now, const VisionTimings& before);

}  // namespace hexlm::tool
