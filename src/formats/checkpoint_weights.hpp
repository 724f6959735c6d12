#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/check_finite.hpp"
#include "formats/safetensors.hpp"
#include "formats/source_weights.hpp"

namespace hexlm {

/// The canonical parameter name of a checkpoint's tensor (spec A.6): without the leading
/// `model.language_model.`, `language_model.model.`, `language_model.` or `model.`. Empty for tensors that
/// are no weights of the model: `mtp.*` and `*.rotary_emb.inv_freq`.
std::optional<std::string> canonical_name(std::string_view source);

/// The weights of a Hugging Face checkpoint under their canonical names, at the precision they are stored in.
class CheckpointWeights : public SourceWeights {
 public:
  /// Errors: those of Checkpoint::open; bad_input when two tensors have one canonical name.
  static Result<std::shared_ptr<CheckpointWeights>> open(const std::string& folder);
  static Result<std::shared_ptr<CheckpointWeights>> create(Checkpoint checkpoint);

  /// Errors: as WeightSource says; unsupported, naming the dtype, for other types than F32, F16 and BF16.
  Result<WeightView> find(std::string_view name) const override;
  bool contains(std::string_view name) const override { return index_.find(name) != index_.end(); }
  void release(const WeightView& weight) const override;
  std::string origin() const override { return checkpoint_.folder(); }

  const Checkpoint& checkpoint() const { return checkpoint_; }
  std::vector<std::string> names() const override;
  const MappedFile* mapping(const WeightView& weight) const override {
    return checkpoint_.file_of(weight.data.name);
  }
  bool is_computed(std::string_view) const override { return false; }
  std::string file_of(const WeightView& weight) const override;
  /// The tensor as it is stored, of any dtype; nullptr when absent.
  const TensorView* stored(std::string_view name) const;

 private:
  explicit CheckpointWeights(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  Checkpoint checkpoint_;
  std::string prefix_;  ///< of the decoder's weights in the file: "model."
  std::map<std::string, const TensorView*, std::less<>> index_;
};

}  // namespace hexlm
