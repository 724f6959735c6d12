#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/checkpoint_weights.hpp"
#include "quantization/imported_matrix.hpp"
#include "quantization/packed_module.hpp"
#include "quantization/quantization_scheme.hpp"

namespace hexlm {

/// A checkpoint that another program quantized (spec D.9), as the weights of a float one: a module's packed
/// parts appear as one parameter NAME.weight. Its codes are kept, in the package codec that holds the grid to
/// the last bit; where none does (act-order, FP8, groups below 16), the weight is dequantized to float32. A
/// converted weight is made anew by every `find`.
class ImportedWeights : public SourceWeights {
 public:
  /// Checks the parts of every module. Errors: bad_input naming module, tensor, expected and got.
  static Result<std::shared_ptr<const SourceWeights>> create(std::shared_ptr<CheckpointWeights> base,
                                                             QuantizationScheme scheme);

  Result<WeightView> find(std::string_view name) const override;
  Result<WeightView> describe(std::string_view name) const override;
  bool contains(std::string_view name) const override;
  void release(const WeightView& weight) const override;
  std::string origin() const override { return base_->origin(); }
  std::vector<std::string> names() const override { return names_; }
  const MappedFile* mapping(const WeightView& weight) const override;
  bool is_computed(std::string_view name) const override { return modules_.find(name) != modules_.end(); }
  std::string file_of(const WeightView& weight) const override;
  std::string note_of(std::string_view name) const override;

 private:
  struct Module {
    PackedModule parts;
    std::vector<int64_t> shape;
    Codec codec;  ///< float32 when no integer codec holds it
    std::string file;
  };
  ImportedWeights() = default;
  Status collect();
  Status check_module(Module& module) const;

  std::shared_ptr<CheckpointWeights> base_;
  QuantizationScheme scheme_;
  std::map<std::string, Module, std::less<>> modules_;  ///< by parameter name
  std::vector<std::string> names_;
};

}  // namespace hexlm
