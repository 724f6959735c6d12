#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "base/text.hpp"
#include "formats/package.hpp"
#include "quantization/codec_choice.hpp"
#include "quantization/export.hpp"
#include "quantization/export_source.hpp"
#include "quantization/resources.hpp"
#include "quantization/tensor_stream.hpp"

namespace hexlm {
namespace {

/// Program, libraries, the pages of the file headers and what the allocator holds on to.
constexpr uint64_t base_memory = uint64_t{24} << 20;
/// A tokenizer is loaded once to check its size; its tables take about this much of its JSON's bytes.
constexpr uint64_t tokenizer_memory_factor = 8;
/// Names, shapes and JSON of one tensor in headers and manifest.
constexpr uint64_t memory_per_tensor = 4096;
/// Configuration files, headers and padding.
constexpr uint64_t disk_slack = uint64_t{1} << 20;
constexpr std::string_view vision_prefix = "visual.";

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

std::string tensor_note(const ExportTensor& tensor, DType source, const CodecChoice& choice, bool tied) {
  std::vector<std::string> parts;
  const int64_t rows = std::max<int64_t>(1, tensor.shape.empty() ? 1 : tensor.shape[0]);
  if (std::string fit = describe_fit(tensor.codec, element_count(tensor.shape) / rows); !fit.empty()) {
    parts.push_back(std::move(fit));
  }
  if (tensor.role == ParameterRole::embedding && tied) parts.emplace_back("also lm_head (tied)");
  const bool vision = tensor.file == vision_file;
  if (tensor.role == ParameterRole::sensitive && !(vision ? choice.vision : choice.linear).is_float()) {
    parts.push_back(fmt::format("kept {}: {}", to_string(source),
                                vision ? "every block builds on it" : "its error is amplified"));
  }
  std::string note;
  for (const std::string& part : parts) note += (note.empty() ? "" : "; ") + part;
  return note;
}

Result<ExportTensor> plan_tensor(const ExportSource& source, const Parameter& parameter,
                                 const CodecChoice& choice, Method method) {
  HEXLM_ASSIGN(const WeightView weight, source.weights->describe(parameter.name));
  ExportTensor tensor;
  tensor.name = parameter.name;
  tensor.file = parameter.name.starts_with(vision_prefix) ? vision_file : weights_file;
  tensor.shape = parameter.shape;
  tensor.role = parameter.role;
  tensor.source_dtype = to_string(weight.data.dtype);
  tensor.imported = !weight.codec.is_float();
  tensor.codec = tensor.imported ? weight.codec : codec_for(parameter.role, weight.data.dtype, choice);
  tensor.source_bytes = weight.stored_bytes();
  tensor.computed = source.weights->is_computed(parameter.name);
  // Scaling by activations moves these off the grid of their own type.
  if (method == Method::awq && parameter.role == ParameterRole::sensitive) tensor.codec = Codec{};
  if (!tensor.codec.is_float() && parameter.shape.size() != 2) {
    return fail(ErrorCode::runtime,
                fmt::format("parameter '{}' of shape {} is no matrix and cannot be {}", parameter.name,
                            format_shape(parameter.shape), to_string(tensor.codec)));
  }
  if (tensor.imported) tensor.source_dtype = to_string(weight.codec);
  tensor.stored_bytes = stored_bytes(tensor.codec, tensor.shape);
  tensor.note = tensor_note(tensor, weight.data.dtype, choice, source.config.text.tied_embeddings);
  const std::string origin = source.weights->note_of(parameter.name);
  if (!origin.empty()) tensor.note = origin + (tensor.note.empty() ? "" : "; " + tensor.note);
  return tensor;
}

std::string nearest_matrix(const ExportPlan& plan, const std::string& selector) {
  std::vector<std::string> names;
  for (const ExportTensor& tensor : plan.tensors) {
    if (tensor.role != ParameterRole::vector) names.push_back(tensor.name);
  }
  return nearest(selector, names);
}

Status apply_recipe(const Recipe& recipe, const ExportSource& source, ExportPlan& plan) {
  for (const RecipeRule& rule : recipe.rules) {
    bool used = false;
    for (ExportTensor& tensor : plan.tensors) {
      if (!matches(rule.selector, tensor.name)) continue;
      used = true;
      if (tensor.role == ParameterRole::vector) {
        return fail(
            ErrorCode::usage,
            fmt::format("recipe: '{}' matches the vector '{}', which stays f32", rule.selector, tensor.name),
            "select matrices only, for example with .weight and the module's name");
      }
      if (tensor.imported) {
        return fail(
            ErrorCode::usage,
            fmt::format("recipe: '{}' matches '{}', which is quantized already ({}) and keeps its codes",
                        rule.selector, tensor.name, to_string(tensor.codec)),
            "select weights that are still float; `export --dry-run` names the others' origin");
      }
      HEXLM_ASSIGN(const WeightView weight, source.weights->describe(tensor.name));
      tensor.codec = rule.codec;
      tensor.stored_bytes = stored_bytes(tensor.codec, tensor.shape);
      tensor.note = tensor_note(tensor, weight.data.dtype, CodecChoice{rule.codec, rule.codec, rule.codec},
                                source.config.text.tied_embeddings);
      if (tensor.role == ParameterRole::sensitive) tensor.note = "by recipe: its error is amplified";
    }
    if (!used) {
      return fail(ErrorCode::usage, fmt::format("recipe: '{}' matches no weight", rule.selector),
                  fmt::format("the nearest name is '{}'", nearest_matrix(plan, rule.selector)));
    }
  }
  return {};
}

/// Calibrated methods choose codes anew, on what the layers before them became.
Status check_method(const ExportOptions& options, const ExportPlan& plan) {
  if (!needs_calibration(options.method)) return {};
  for (const ExportTensor& tensor : plan.tensors) {
    if (!tensor.imported) continue;
    return fail(
        ErrorCode::unsupported,
        fmt::format("{}: '{}' is quantized already ({}); the method {} needs float weights",
                    options.checkpoint, tensor.name, to_string(tensor.codec), to_string(options.method)),
        "use --method rtn, which keeps the codes, or export from the float checkpoint");
  }
  return {};
}

void add_totals(ExportPlan& plan) {
  uint64_t elements = 0;
  uint64_t linear_elements = 0;
  uint64_t linear_bytes = 0;
  for (const ExportTensor& tensor : plan.tensors) {
    const auto count = static_cast<uint64_t>(element_count(tensor.shape));
    elements += count;
    plan.bytes += tensor.stored_bytes;
    if (tensor.role != ParameterRole::linear) continue;
    linear_elements += count;
    linear_bytes += tensor.stored_bytes;
  }
  const auto bits = [](uint64_t bytes, uint64_t count) {
    return count == 0 ? 0 : 8 * static_cast<double>(bytes) / static_cast<double>(count);
  };
  plan.bits_per_weight = bits(plan.bytes, elements);
  plan.linear_bits_per_weight = bits(linear_bytes, linear_elements);
}

uint64_t estimate_peak_memory(const ExportPlan& plan, const ExportOptions& options) {
  uint64_t largest = 0;
  for (const ExportTensor& tensor : plan.tensors) {
    largest = std::max(largest, stream_memory(tensor, options.threads));
  }
  std::error_code missing;
  const auto tokenizer = std::filesystem::file_size(options.checkpoint + "/tokenizer.json", missing);
  return base_memory + largest + plan.tensors.size() * memory_per_tensor +
         (missing ? 0 : tokenizer * tokenizer_memory_factor);
}

Status check_resources(const ExportOptions& options, ExportPlan& plan) {
  plan.peak_memory_bytes = estimate_peak_memory(plan, options);
  const std::optional<uint64_t> memory = available_memory_bytes();
  if (memory && *memory < plan.peak_memory_bytes) {
    return fail(ErrorCode::limit,
                fmt::format("export needs about {} of memory, {} are available",
                            format_bytes(plan.peak_memory_bytes), format_bytes(*memory)),
                "use fewer threads or close other programs");
  }
  if (options.package.empty()) return {};
  HEXLM_ASSIGN(plan.free_disk_bytes, free_disk_bytes(options.package));
  const uint64_t needed = plan.bytes + disk_slack;
  if (plan.free_disk_bytes < needed) {
    return fail(ErrorCode::limit,
                fmt::format("{}: the package takes {}, {} are free on its disk", options.package,
                            format_bytes(needed), format_bytes(plan.free_disk_bytes)),
                "free disk space or write to another disk");
  }
  return {};
}

void add_notes(const ExportSource& source, ExportPlan& plan) {
  plan.notes = source.config.notes;
  for (const std::string& name : source.left_out) {
    if (name != "lm_head.weight") continue;
    plan.notes.emplace_back(
        "lm_head.weight of the checkpoint is left out: config.json ties it to the embedding");
  }
}

}  // namespace

Result<Graph> graph_of_text(const ExportPlan& plan) {
  ModelConfig config = plan.config;
  config.vision.reset();
  return build_text_graph(config);
}

Result<ExportPlan> plan_export(const ExportOptions& options) {
  HEXLM_ASSIGN(ExportSource source, open_export_source(options.checkpoint, options.adapters, options.rotate));
  HEXLM_ASSIGN(const CodecChoice choice, choose_codecs(options, source.config.text.tied_embeddings));
  ExportPlan plan;
  plan.tensors.reserve(source.parameters.size());
  for (const Parameter& parameter : source.parameters) {
    HEXLM_ASSIGN(ExportTensor tensor, plan_tensor(source, parameter, choice, options.method));
    plan.tensors.push_back(std::move(tensor));
  }
  HEXLM_TRY(check_method(options, plan));
  HEXLM_TRY(apply_recipe(options.recipe, source, plan));
  add_totals(plan);
  add_notes(source, plan);
  plan.config = std::move(source.config);
  HEXLM_TRY(check_resources(options, plan));
  return plan;
}

}  // namespace hexlm
