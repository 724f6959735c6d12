#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/source_weights.hpp"
#include "graph/graph.hpp"
#include "models/model_config.hpp"
#include "quantization/hadamard.hpp"

namespace hexlm {

/// A model whose residual stream is turned by a random Hadamard rotation R (R1 of spec D.7), which spreads
/// outliers over all channels. It computes the same function: norms become 1 and their weights, then R, go
/// into the matrices that read them; matrices that write into the stream are turned the other way. Rotated
/// weights are computed in double anew by every `find`, as float32.
class RotatedWeights : public SourceWeights {
 public:
  /// `config` is adjusted: tied embeddings come apart, as only the head takes the final norm's weights.
  /// Errors: unsupported, naming the node, where something else than a norm in front of matrices reads the
  /// stream, or something else than a matrix writes into it; for weights that are quantized already; for a
  /// hidden size without a Hadamard matrix.
  static Result<std::shared_ptr<const SourceWeights>> create(std::shared_ptr<const SourceWeights> base,
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
  friend class RotationPlanner;
  /// What becomes of one parameter.
  struct Change {
    std::string source;         ///< the base's parameter
    std::string norm;           ///< whose weights multiply the columns; "" for none
    float norm_offset = 0;      ///< of a zero-centred norm
    bool turn_columns = false;  ///< W ← W R
    bool turn_rows = false;     ///< W ← Rᵀ W; of a bias b ← b R
    bool becomes_one = false;   ///< a norm's weights, less its offset
  };
  explicit RotatedWeights(HadamardRotation rotation) : rotation_(std::move(rotation)) {}
  void apply(const Change& change, const std::vector<float>& norm, std::vector<float>& values,
             int64_t rows) const;

  std::shared_ptr<const SourceWeights> base_;
  HadamardRotation rotation_;
  std::map<std::string, Change, std::less<>> changes_;
};

}  // namespace hexlm
