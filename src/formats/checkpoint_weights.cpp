#include "formats/checkpoint_weights.hpp"

#include <array>
#include <fmt/format.h>
#include <utility>

#include "base/text.hpp"

namespace hexlm {
namespace {

/// The longer ones first: each is also a prefix, or holds one, of those after it.
constexpr std::array<std::string_view, 4> wrappers = {"model.language_model.", "language_model.model.",
                                                      "language_model.", "model."};

std::optional<Codec> float_codec(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return Codec{Codec::Kind::f32, 32, 0, true};
    case DType::f16:
      return Codec{Codec::Kind::f16, 16, 0, true};
    case DType::bf16:
      return Codec{Codec::Kind::bf16, 16, 0, true};
    default:
      return std::nullopt;
  }
}

/// Its weights have the file's prefix; lm_head has none.
bool of_decoder(std::string_view name) {
  return name.starts_with("layers.") || name.starts_with("embed_tokens.") || name.starts_with("norm.");
}

}  // namespace

std::optional<std::string> canonical_name(std::string_view source) {
  for (const std::string_view wrapper : wrappers) {
    if (source.starts_with(wrapper)) {
      source.remove_prefix(wrapper.size());
      break;
    }
  }
  if (source.starts_with("mtp.") || source.ends_with(".rotary_emb.inv_freq")) return std::nullopt;
  return std::string(source);
}

Result<std::shared_ptr<CheckpointWeights>> CheckpointWeights::open(const std::string& folder) {
  HEXLM_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder));
  return create(std::move(checkpoint));
}

Result<std::shared_ptr<CheckpointWeights>> CheckpointWeights::create(Checkpoint checkpoint) {
  std::shared_ptr<CheckpointWeights> weights(new CheckpointWeights(std::move(checkpoint)));
  for (const TensorView* tensor : weights->checkpoint_.tensors()) {
    std::optional<std::string> name = canonical_name(tensor->name);
    if (!name) continue;
    const auto [former, added] = weights->index_.emplace(*std::move(name), tensor);
    if (!added) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: tensors '{}' and '{}' both stand for the weight '{}'", weights->origin(),
                              former->second->name, tensor->name, former->first),
                  "the folder mixes files of two exports: download it again");
    }
    // How this file names the weights of the decoder, for what is not in it.
    if (of_decoder(former->first)) {
      weights->prefix_ = tensor->name.substr(0, tensor->name.size() - former->first.size());
    }
  }
  return weights;
}

Result<WeightView> CheckpointWeights::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    const auto near = index_.find(nearest(name, names()));
    return fail(
        ErrorCode::bad_input,
        fmt::format("{}: the weight '{}{}' is missing", origin(), of_decoder(name) ? prefix_ : "", name),
        near == index_.end() ? "download the checkpoint again: it holds no weights"
                             : fmt::format("the nearest name is '{}'", near->second->name));
  }
  const TensorView& tensor = *found->second;
  const std::optional<Codec> codec = float_codec(tensor.dtype);
  if (!codec) {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: tensor '{}' has dtype {}, expected F32, F16 or BF16",
                            checkpoint_.file_of(tensor.name)->path(), tensor.name, to_string(tensor.dtype)),
                "use the checkpoint that was not quantized");
  }
  WeightView weight;
  weight.name = found->first;
  weight.codec = *codec;
  weight.shape = tensor.shape;
  weight.data = tensor;
  return weight;
}

void CheckpointWeights::release(const WeightView& weight) const {
  if (const MappedFile* file = checkpoint_.file_of(weight.data.name)) file->release(weight.data.bytes);
}

std::string CheckpointWeights::file_of(const WeightView& weight) const {
  const MappedFile* file = mapping(weight);
  return file != nullptr ? file->path() : origin();
}

const TensorView* CheckpointWeights::stored(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : found->second;
}

std::vector<std::string> CheckpointWeights::names() const {
  std::vector<std::string> all;
  all.reserve(index_.size());
  for (const auto& [name, tensor] : index_) all.push_back(name);
  return all;
}

}  // namespace hexlm
