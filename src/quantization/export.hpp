#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "formats/codec.hpp"
#include "formats/json.hpp"
#include "models/model_config.hpp"
#include "quantization/adapted_weights.hpp"
#include "quantization/calibration_text.hpp"
#include "quantization/graph_runner.hpp"
#include "quantization/method.hpp"
#include "quantization/recipe.hpp"

namespace hexlm {

/// What to write. Unset specs take the defaults of docs/quantization.md.
struct ExportOptions {
  std::string checkpoint;               ///< folder, or .gguf file
  std::string package;                  ///< folder to create
  std::vector<AdapterChoice> adapters;  ///< merged in on the way
  bool rotate = false;                  ///< turn the residual stream first, see RotatedWeights
  std::optional<Codec> linear;          ///< --quant, default w4g64
  std::optional<Codec> lm_head;         ///< --lm-head, see docs/quantization.md
  std::optional<Codec> embedding;       ///< --embedding; tied: must equal lm_head when both are given
  std::optional<Codec> vision;          ///< --vision: matrices of the vision tower, default w8g128
  Method method = Method::rtn;
  std::optional<Method> vision_method;              ///< see vision_method_of
  Recipe recipe;                                    ///< codecs by name, over the ones above
  std::optional<CalibrationSet> calibration;        ///< for methods that need one
  const GraphRunner* runner = nullptr;              ///< the same; not owned
  std::function<void(double seconds)> on_estimate;  ///< as LayerOptions::on_estimate
  std::string work;                                 ///< folder of finished layers; default PACKAGE.work
  std::string statistics;       ///< file with saved calibration moments, in place of `calibration`
  std::string save_statistics;  ///< file to write them to
  bool replace = false;         ///< overwrite an existing package
  int threads = 1;
  std::vector<std::string> argv;  ///< recorded in the manifest
  std::string tool_version;
};

/// The method for the matrices of the vision tower: the one asked for, else that of the decoder; but `mse`
/// when that looks at activations and there are no images to calibrate with.
Method vision_method_of(const ExportOptions& options);

/// One tensor of the plan; `note` says what is special (a short last group, tied, kept at f16 because …).
struct ExportTensor {
  std::string name;
  std::string file;  ///< of the package: weights_file or vision_file
  std::vector<int64_t> shape;
  ParameterRole role = ParameterRole::vector;
  std::string source_dtype;
  Codec codec;
  uint64_t source_bytes = 0;
  uint64_t stored_bytes = 0;
  bool imported = false;  ///< quantized by another program: its codes are kept
  bool computed = false;  ///< merged or dequantized: held whole in memory while it is written
  std::string note;
};

struct ExportPlan {
  std::vector<ExportTensor> tensors;
  uint64_t bytes = 0;          ///< of the tensor files
  double bits_per_weight = 0;  ///< stored bits of all tensors / elements of all tensors
  double linear_bits_per_weight = 0;
  uint64_t peak_memory_bytes = 0;  ///< estimate of the resident peak
  uint64_t free_disk_bytes = 0;
  std::vector<std::string> notes;  ///< what of the checkpoint is left out, and defaults that were replaced
  ModelConfig config;
};

/// Everything that can be known before work starts: architecture, every tensor present with its shape,
/// codecs, sizes, memory, disk. Errors: bad_input, unsupported, limit (disk); usage for a recipe's selector
/// that matches nothing, a vector or a weight that is quantized already.
Result<ExportPlan> plan_export(const ExportOptions& options);
/// About what a calibrated export holds at its peak; 0 for methods that look at weights only. Reads the sizes
/// of `options.calibration`.
uint64_t calibration_memory(const ExportOptions& options, const ExportPlan& plan);
/// The decoder without its image inputs: what calibration text without images runs through. Errors: as
/// build_text_graph.
Result<Graph> graph_of_text(const ExportPlan& plan);

struct ExportResult {
  uint64_t bytes = 0;
  double bits_per_weight = 0;
  uint64_t peak_memory_bytes = 0;  ///< measured
  double seconds = 0;
};

/// Streams the checkpoint tensor by tensor into a package (written under a temporary name and renamed).
/// Tokenizer, chat template, generation and preprocessor configuration are copied.
Result<ExportResult> export_package(const ExportOptions& options, const ExportPlan& plan,
                                    const ProgressCallback& progress);

}  // namespace hexlm
