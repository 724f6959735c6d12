#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/safetensors.hpp"

namespace hexlm {

/// What one adapter does to the weight of one module (spec E.3). Views into the adapter's file: F32, F16 or
/// BF16.
struct AdapterModule {
  std::string path;                     ///< as in the file, without "base_model.model.": what patterns match
  TensorView down;                      ///< lora_A [rank, inputs]; of an embedding [rank, vocabulary]
  TensorView up;                        ///< lora_B [outputs, rank]; of an embedding [hidden, rank]
  std::optional<TensorView> magnitude;  ///< DoRA's, [outputs]
  std::optional<TensorView> bias;       ///< lora_B's own bias, [outputs]
  bool embedding = false;
  double scaling = 1;  ///< alpha / rank, or alpha / sqrt(rank) for rsLoRA

  int64_t rank() const { return down.shape[0]; }
};

/// A PEFT LoRA adapter: adapter_config.json and adapter_model.safetensors, checked whole (spec E.1, E.2).
class Adapter {
 public:
  /// Errors: bad_input for missing, malformed or inconsistent files (names file, key or tensor, and both
  /// values); unsupported for other methods than LoRA, for options that change the result and are not
  /// implemented, for tensors of an unknown kind, and for initialisations that changed the base model's own
  /// weights (PiSSA, OLoRA, CorDA, LoftQ, …: spec E.1).
  static Result<std::shared_ptr<const Adapter>> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  /// By canonical module name ("layers.0.self_attn.q_proj").
  const std::map<std::string, AdapterModule, std::less<>>& modules() const { return modules_; }
  /// Whole parameters that the adapter replaces (modules_to_save, trained biases), by canonical name.
  const std::map<std::string, TensorView, std::less<>>& replacements() const { return replacements_; }
  /// The base weights are stored [inputs, outputs]: deltas are transposed (fan_in_fan_out).
  bool transposed() const { return transposed_; }
  /// What adapter_config.json names as the base model, "" when it names none.
  const std::string& base_model() const { return base_model_; }
  const MappedFile& file() const { return file_->file(); }

 private:
  friend class AdapterReader;
  Adapter() = default;
  std::string folder_;
  std::shared_ptr<const SafetensorsFile> file_;
  std::map<std::string, AdapterModule, std::less<>> modules_;
  std::map<std::string, TensorView, std::less<>> replacements_;
  bool transposed_ = false;
  std::string base_model_;
};

}  // namespace hexlm
