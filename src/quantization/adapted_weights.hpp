#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/adapter.hpp"
#include "formats/source_weights.hpp"
#include "models/model_config.hpp"

namespace hexlm {

/// An adapter and what its update is multiplied with beside its own scaling.
struct AppliedAdapter {
  std::shared_ptr<const Adapter> adapter;
  double weight = 1;
};

/// Weights of a base model with adapters merged in (spec E.3): W + Σ weight · scaling · B·A in double,
/// rounded once to float32; DoRA scales the rows of the sum to its magnitudes. Parameters that no adapter
/// touches are the base's own bytes. A merged weight is computed anew by every `find`.
class AdaptedWeights : public SourceWeights {
 public:
  /// `config` is adjusted: embeddings that were tied and of which one side is adapted come apart (the other
  /// keeps the base's weights, as in PEFT), and replaced embeddings may change the vocabulary's size.
  /// Errors: bad_input when a module or parameter of an adapter is not in the base or of another shape (names
  /// both shapes and the base the adapter was made for); unsupported for combinations that have no single
  /// result (DoRA or whole modules with a weight other than 1, two adapters for one of them) and for a base
  /// that is quantized.
  static Result<std::shared_ptr<const SourceWeights>> create(std::shared_ptr<const SourceWeights> base,
                                                             std::vector<AppliedAdapter> adapters,
                                                             ModelConfig& config);

  Result<WeightView> find(std::string_view name) const override;
  Result<WeightView> describe(std::string_view name) const override;
  bool contains(std::string_view name) const override;
  void release(const WeightView& weight) const override;
  std::string origin() const override { return base_->origin(); }
  std::vector<std::string> names() const override;
  const MappedFile* mapping(const WeightView& weight) const override;
  bool is_computed(std::string_view name) const override;
  std::string file_of(const WeightView& weight) const override { return base_->file_of(weight); }
  std::string note_of(std::string_view name) const override { return base_->note_of(name); }

 private:
  friend class AdapterMerger;
  /// One low-rank term of a matrix, or of a bias.
  struct Term {
    const AdapterModule* module = nullptr;
    double scale = 1;
    bool transposed = false;  ///< the weight is [inputs, outputs]
  };
  /// What becomes of one parameter.
  struct Change {
    std::string base;  ///< the base's parameter, "" when it is replaced
    std::vector<Term> terms;
    const TensorView* replacement = nullptr;
    const MappedFile* file = nullptr;  ///< of the replacement
  };
  AdaptedWeights() = default;
  Result<WeightView> merge(const std::string& name, const Change& change) const;

  std::shared_ptr<const SourceWeights> base_;
  std::vector<AppliedAdapter> adapters_;
  std::map<std::string, Change, std::less<>> changes_;
};

/// Opens adapters and applies them; without any, `base` itself.
struct AdapterChoice {
  std::string folder;
  double weight = 1;
  bool operator==(const AdapterChoice&) const = default;
};
Result<std::shared_ptr<const SourceWeights>> apply_adapters(std::shared_ptr<const SourceWeights> base,
                                                            const std::vector<AdapterChoice>& choices,
                                                            ModelConfig& config);

}  // namespace hexlm
