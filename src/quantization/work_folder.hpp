#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/package.hpp"
#include "formats/safetensors.hpp"
#include "quantization/quantizer.hpp"

namespace hexlm {

/// A tensor that calibration has finished: what the manifest says about it, its stored parts, and the records
/// that provenance keeps.
struct PreparedTensor {
  PackageTensor stored;
  double output_error = 0;        ///< relative, on the calibration inputs
  double damping = 0;             ///< that the Hessian needed
  double range_ratio = 1;         ///< InputMoments::range_ratio
  std::vector<TensorView> parts;  ///< in tensor_plans() order
};

/// Its weights as floats.
std::vector<float> decode_stored(const PreparedTensor& tensor);

/// One tensor on its way into the work folder.
struct FinishedTensor {
  PackageTensor stored;  ///< file and checksum are filled in
  EncodedRows encoded;
  double output_error = 0;
  double damping = 0;
  double range_ratio = 1;
};

/// What a calibrated export has finished, layer by layer, so that an interrupted one goes on where it
/// stopped. The folder's key says what was asked for: layers made for another key are never used.
class WorkFolder {
 public:
  /// Opens or creates the folder; layers of another key are removed, as are damaged ones and all after them.
  /// Errors: usage when the folder holds other files than this class writes.
  static Result<WorkFolder> open(const std::string& path, const std::string& key);

  /// How many layers, counted from the first, are finished.
  int64_t finished_layers() const { return static_cast<int64_t>(layers_.size()); }
  /// Writes the next layer (atomically, with its checksum).
  Status store(std::vector<FinishedTensor> tensors);
  /// nullptr when no finished layer has a tensor of that name.
  const PreparedTensor* find(std::string_view name) const;
  const std::map<std::string, PreparedTensor, std::less<>>& tensors() const { return tensors_; }
  /// Names of one finished layer's tensors.
  const std::vector<std::string>& layer(int64_t index) const { return layers_[static_cast<size_t>(index)]; }
  /// Deletes the folder.
  void remove();
  const std::string& path() const { return path_; }

 private:
  Status load(int64_t layer);
  std::string path_;
  std::string key_;
  std::vector<std::vector<std::string>> layers_;
  std::vector<std::shared_ptr<SafetensorsFile>> files_;
  std::map<std::string, PreparedTensor, std::less<>> tensors_;
};

}  // namespace hexlm
