#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/gguf.hpp"
#include "formats/source_weights.hpp"
#include "models/gguf.hpp"

namespace hexlm {

/// The weights of a GGUF file. Blocks keep their codes, in the package codec with the same grid; float
/// tensors are viewed as they are. Rows and columns are put back into the checkpoint's order without touching
/// codes; where reordering columns would cut through groups, the weight is dequantized to float32.
class GgufWeights : public SourceWeights {
 public:
  /// Errors: those of gguf_weights; bad_input when two tensors stand for one weight.
  static Result<std::shared_ptr<const SourceWeights>> create(std::shared_ptr<const GgufFile> file,
                                                             const ModelConfig& config);

  /// Errors: bad_input also for scales that are not finite or beyond fp16's range.
  Result<WeightView> find(std::string_view name) const override;
  Result<WeightView> describe(std::string_view name) const override;
  bool contains(std::string_view name) const override { return weights_.find(name) != weights_.end(); }
  void release(const WeightView& weight) const override;
  std::string origin() const override { return file_->file().path(); }
  std::vector<std::string> names() const override;
  const MappedFile* mapping(const WeightView& weight) const override;
  bool is_computed(std::string_view name) const override;
  std::string file_of(const WeightView&) const override { return origin(); }
  std::string note_of(std::string_view name) const override;

 private:
  struct Entry {
    GgufWeight weight;
    Codec codec;
    bool computed = false;
  };
  GgufWeights() = default;
  Result<const Entry*> entry(std::string_view name) const;
  std::shared_ptr<const GgufFile> file_;
  std::map<std::string, Entry, std::less<>> weights_;
};

/// Tokenizer, chat template and end tokens of a GGUF file, as the files of a checkpoint that a package takes
/// over. Errors: bad_input for damaged vocabularies; unsupported for other tokenizers than byte-level BPE
/// with the pre-tokenizers of Qwen2/3, Qwen3.5 and Llama 3.
struct GgufCompanions {
  std::map<std::string, std::string> files;  ///< "tokenizer.json", … to content; only those that exist
};
Result<GgufCompanions> gguf_companions(const GgufFile& file);

}  // namespace hexlm
