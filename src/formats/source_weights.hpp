#pragma once

#include <string>
#include <vector>

#include "base/mapped_file.hpp"
#include "formats/codec.hpp"

namespace hexlm {

/// Weights that a package can be made of: a checkpoint as it is stored, merged with adapters, or imported
/// from another quantization.
class SourceWeights : public WeightSource {
 public:
  /// Every canonical name, sorted.
  virtual std::vector<std::string> names() const = 0;
  /// The mapped file that `weight`'s bytes lie in; nullptr for weights that were computed.
  virtual const MappedFile* mapping(const WeightView& weight) const = 0;
  /// Whether `find` makes the weight anew, held whole in memory, instead of viewing a mapped file.
  virtual bool is_computed(std::string_view name) const = 0;
  /// How a weight was imported, for the plan: "gptq: codes kept"; empty for weights that are as they are
  /// stored.
  virtual std::string note_of(std::string_view) const { return {}; }
  /// The file that a weight comes from, for messages and provenance.
  virtual std::string file_of(const WeightView& weight) const = 0;
};

}  // namespace hexlm
