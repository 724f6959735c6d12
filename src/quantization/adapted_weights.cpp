#include "quantization/adapted_weights.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "quantization/low_rank.hpp"
#include "quantization/quantizer.hpp"

namespace hexlm {
namespace {

constexpr const char* embedding_weight = "embed_tokens.weight";
constexpr const char* head_weight = "lm_head.weight";

WeightView float_view(const std::string& name, std::vector<int64_t> shape) {
  WeightView view;
  view.name = name;
  view.codec = Codec{};
  view.shape = shape;
  view.data = {name, DType::f32, std::move(shape), {}};
  return view;
}

Codec codec_of(DType dtype) {
  if (dtype == DType::f16) return {Codec::Kind::f16, 16, 0, true};
  if (dtype == DType::bf16) return {Codec::Kind::bf16, 16, 0, true};
  return {};
}

/// Scales rows (or, of a transposed weight, columns) to their DoRA magnitudes: m / ‖V‖.
void scale_to_magnitudes(std::span<float> values, int64_t columns, bool by_column,
                         std::span<const float> magnitudes) {
  std::vector<double> squares(magnitudes.size());
  const auto width = static_cast<size_t>(columns);
  const auto slot = [&](size_t i) { return by_column ? i % width : i / width; };
  for (size_t i = 0; i < values.size(); ++i) squares[slot(i)] += static_cast<double>(values[i]) * values[i];
  // In float from here on, as PEFT does: its merged weights come out to the last bit more often.
  std::vector<float> factors(magnitudes.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    factors[i] = magnitudes[i] / static_cast<float>(std::sqrt(squares[i]));
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[slot(i)];
}

}  // namespace

/// Checks adapters against the base and collects what becomes of each parameter.
class AdapterMerger {
 public:
  AdapterMerger(AdaptedWeights& weights, ModelConfig& config) : weights_(weights), config_(config) {}

  Status run() {
    for (const AppliedAdapter& applied : weights_.adapters_) {
      adapter_ = applied.adapter.get();
      weight_ = applied.weight;
      for (const auto& [name, module] : adapter_->modules()) HEXLM_TRY(add_module(name, module));
      for (const auto& [name, tensor] : adapter_->replacements()) HEXLM_TRY(add_replacement(name, tensor));
    }
    return adjust_config();
  }

 private:
  tl::unexpected<Error> mismatch(const std::string& what) const {
    const std::string& made_for = adapter_->base_model();
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", adapter_->folder(), what),
                made_for.empty() ? "the adapter belongs to another base model"
                                 : fmt::format("the adapter was made for '{}'", made_for));
  }
  tl::unexpected<Error> unsupported(const std::string& what, const std::string& hint) const {
    return fail(ErrorCode::unsupported, fmt::format("{}: {}", adapter_->folder(), what), hint);
  }

  /// The parameter of the base that `name` starts from: a tied head starts from the embedding.
  std::string base_of(const std::string& name) const {
    return config_.text.tied_embeddings && name == head_weight ? embedding_weight : name;
  }

  Result<WeightView> base_view(const std::string& name, const std::string& module) const {
    const std::string base = base_of(name);
    if (!weights_.base_->contains(base)) {
      return mismatch(fmt::format("module '{}' needs the weight '{}', which {} does not have", module, base,
                                  weights_.base_->origin()));
    }
    HEXLM_ASSIGN(WeightView view, weights_.base_->describe(base));
    if (!view.codec.is_float()) {
      return unsupported(
          fmt::format("module '{}' would be merged into a weight that is quantized ({})", module,
                      to_string(view.codec)),
          "apply it unmerged with `hexlm run --adapter`, or merge it into the float checkpoint");
    }
    return view;
  }

  Status add_term(const std::string& name, AdaptedWeights::Term term) {
    AdaptedWeights::Change& change = weights_.changes_[name];
    const bool alone = change.terms.empty() && change.replacement == nullptr;
    const auto is_dora = [](const AdaptedWeights::Term& each) { return each.module->magnitude.has_value(); };
    const bool dora = is_dora(term) || std::any_of(change.terms.begin(), change.terms.end(), is_dora);
    if (change.replacement != nullptr || (dora && !alone)) {
      return unsupported(
          fmt::format("'{}' is changed by two adapters, one of which replaces it or is DoRA", name),
          "merge one adapter at a time, the result being the next one's checkpoint");
    }
    change.base = base_of(name);
    change.terms.push_back(term);
    return {};
  }

  Status add_module(const std::string& name, const AdapterModule& module) {
    const std::string parameter = name + ".weight";
    HEXLM_ASSIGN(const WeightView base, base_view(parameter, module.path));
    const bool transposed = adapter_->transposed() && !module.embedding;
    const int64_t outputs = module.up.shape[0];
    const int64_t inputs = module.down.shape[1];
    const bool swapped = transposed || module.embedding;
    const std::vector<int64_t> shape =
        swapped ? std::vector<int64_t>{inputs, outputs} : std::vector<int64_t>{outputs, inputs};
    if (base.shape != shape) {
      return mismatch(fmt::format("module '{}' updates a weight of shape {}, '{}' in {} has {}", module.path,
                                  format_shape(shape), base.name, weights_.base_->origin(),
                                  format_shape(base.shape)));
    }
    if (module.magnitude && weight_ != 1) {
      return unsupported(
          fmt::format("module '{}' uses DoRA, which has no result at weight {}", module.path, weight_),
          "apply it with weight 1");
    }
    HEXLM_TRY(add_term(parameter, {&module, weight_ * module.scaling, transposed}));
    if (!module.bias) return {};
    const std::string bias = name + ".bias";
    HEXLM_ASSIGN(const WeightView base_bias, base_view(bias, module.path));
    if (base_bias.shape != module.bias->shape) {
      return mismatch(fmt::format("tensor '{}' has shape {}, '{}' has {}", module.bias->name,
                                  format_shape(module.bias->shape), bias, format_shape(base_bias.shape)));
    }
    return add_term(bias, {&module, weight_ * module.scaling, false});
  }

  Status add_replacement(const std::string& name, const TensorView& tensor) {
    HEXLM_ASSIGN(const WeightView base, base_view(name, tensor.name));
    const bool resizable = name == embedding_weight || name == head_weight;
    const bool fits =
        resizable && tensor.shape.size() == 2 ? tensor.shape[1] == base.shape[1] : tensor.shape == base.shape;
    if (!fits) {
      return mismatch(fmt::format("tensor '{}' has shape {}, '{}' in {} has {}", tensor.name,
                                  format_shape(tensor.shape), base.name, weights_.base_->origin(),
                                  format_shape(base.shape)));
    }
    if (weight_ != 1) {
      return unsupported(
          fmt::format("tensor '{}' replaces a whole parameter, which has no result at weight {}", tensor.name,
                      weight_),
          "apply it with weight 1");
    }
    AdaptedWeights::Change& change = weights_.changes_[name];
    if (!change.terms.empty() || change.replacement != nullptr) {
      return unsupported(fmt::format("'{}' is changed by two adapters, one of which replaces it", name),
                         "merge one adapter at a time, the result being the next one's checkpoint");
    }
    change.replacement = &tensor;
    change.file = &adapter_->file();
    return {};
  }

  /// Unties embedding and head where only one of them changes, and follows a replaced embedding's size.
  Status adjust_config() {
    Json json = config_.source;
    const auto embedding = weights_.changes_.find(embedding_weight);
    const auto head = weights_.changes_.find(head_weight);
    const bool changes_embedding = embedding != weights_.changes_.end();
    const bool changes_head = head != weights_.changes_.end();
    bool changed = false;
    if (config_.text.tied_embeddings && (changes_embedding || changes_head)) {
      if (!changes_head) weights_.changes_[head_weight].base = embedding_weight;
      set(json, "tie_word_embeddings", false);
      changed = true;
    }
    if (changes_embedding && embedding->second.replacement != nullptr) {
      const int64_t rows = embedding->second.replacement->shape[0];
      if (rows != config_.text.vocabulary_size) {
        set(json, "vocab_size", rows);
        changed = true;
      }
    }
    if (!changed) return {};
    HEXLM_ASSIGN(config_, parse_model_config(json, weights_.origin() + "/config.json"));
    return {};
  }

  /// Where the key is, and at least at the top level.
  static void set(Json& json, const char* key, const Json& value) {
    const auto text = json.find("text_config");
    const bool nested = text != json.end() && text->is_object();
    if (nested && text->contains(key)) (*text)[key] = value;
    if (!nested || json.contains(key) || std::string_view(key) == "tie_word_embeddings") json[key] = value;
  }

  AdaptedWeights& weights_;
  ModelConfig& config_;
  const Adapter* adapter_ = nullptr;
  double weight_ = 1;
};

Result<std::shared_ptr<const SourceWeights>> AdaptedWeights::create(std::shared_ptr<const SourceWeights> base,
                                                                    std::vector<AppliedAdapter> adapters,
                                                                    ModelConfig& config) {
  std::shared_ptr<AdaptedWeights> weights(new AdaptedWeights());
  weights->base_ = std::move(base);
  weights->adapters_ = std::move(adapters);
  HEXLM_TRY(AdapterMerger(*weights, config).run());
  return std::shared_ptr<const SourceWeights>(std::move(weights));
}

bool AdaptedWeights::contains(std::string_view name) const {
  return changes_.find(name) != changes_.end() || base_->contains(name);
}

std::vector<std::string> AdaptedWeights::names() const {
  const std::vector<std::string> base = base_->names();
  std::set<std::string> all(base.begin(), base.end());
  for (const auto& [name, change] : changes_) all.insert(name);
  return {all.begin(), all.end()};
}

Result<WeightView> AdaptedWeights::describe(std::string_view name) const {
  const auto found = changes_.find(name);
  if (found == changes_.end()) return base_->describe(name);
  const Change& change = found->second;
  if (change.replacement != nullptr) return find(name);
  HEXLM_ASSIGN(WeightView base, base_->describe(change.base));
  if (!change.terms.empty()) return float_view(found->first, base.shape);
  base.name = found->first;
  return base;
}

Result<WeightView> AdaptedWeights::find(std::string_view name) const {
  const auto found = changes_.find(name);
  if (found == changes_.end()) return base_->find(name);
  const Change& change = found->second;
  if (change.replacement != nullptr) {
    WeightView view = float_view(found->first, change.replacement->shape);
    view.codec = codec_of(change.replacement->dtype);
    view.data = *change.replacement;
    return view;
  }
  if (!change.terms.empty()) return merge(found->first, change);
  HEXLM_ASSIGN(WeightView view, base_->find(change.base));
  view.name = found->first;
  return view;
}

Result<WeightView> AdaptedWeights::merge(const std::string& name, const Change& change) const {
  HEXLM_ASSIGN(const WeightView base, base_->find(change.base));
  auto values = std::make_shared<std::vector<float>>(decode_rows(base, 0, base.rows()));
  base_->release(base);
  const bool is_bias = base.shape.size() == 1;
  const int64_t columns = is_bias ? base.rows() : base.columns();
  const int64_t rows = is_bias ? 1 : base.rows();
  std::vector<LowRankProduct> products;
  for (const Term& term : change.terms) {
    if (is_bias) {
      products.push_back({1, columns, 1, {1}, tensor_floats(*term.module->bias)});
    } else {
      products.push_back(low_rank_product(*term.module, term.transposed));
    }
  }
  std::vector<double> sums(static_cast<size_t>(columns));
  for (int64_t row = 0; row < rows; ++row) {
    float* out = values->data() + row * columns;
    std::copy(out, out + columns, sums.begin());
    for (size_t i = 0; i < products.size(); ++i) {
      add_product_row(products[i], change.terms[i].scale, row, sums);
    }
    std::transform(sums.begin(), sums.end(), out, [](double sum) { return static_cast<float>(sum); });
  }
  const Term& first = change.terms.front();
  if (!is_bias && first.module->magnitude) {
    scale_to_magnitudes(*values, columns, first.transposed, tensor_floats(*first.module->magnitude));
  }
  WeightView view = float_view(name, base.shape);
  view.data.name = base.data.name;  // as the checkpoint calls it, for messages
  view.data.bytes = std::as_bytes(std::span(*values));
  view.storage = std::move(values);
  return view;
}

void AdaptedWeights::release(const WeightView& weight) const {
  if (const MappedFile* file = mapping(weight)) file->release(weight.data.bytes);
}

bool AdaptedWeights::is_computed(std::string_view name) const {
  const auto found = changes_.find(name);
  if (found == changes_.end()) return base_->is_computed(name);
  if (found->second.replacement != nullptr) return false;
  return !found->second.terms.empty() || base_->is_computed(found->second.base);
}

const MappedFile* AdaptedWeights::mapping(const WeightView& weight) const {
  if (weight.storage != nullptr) return nullptr;
  const auto found = changes_.find(weight.name);
  if (found != changes_.end() && found->second.replacement != nullptr) return found->second.file;
  return base_->mapping(weight);
}

Result<std::shared_ptr<const SourceWeights>> apply_adapters(std::shared_ptr<const SourceWeights> base,
                                                            const std::vector<AdapterChoice>& choices,
                                                            ModelConfig& config) {
  if (choices.empty()) return base;
  std::vector<AppliedAdapter> adapters;
  for (const AdapterChoice& choice : choices) {
    HEXLM_ASSIGN(std::shared_ptr<const Adapter> adapter, Adapter::open(choice.folder));
    adapters.push_back({std::move(adapter), choice.weight});
  }
  return AdaptedWeights::create(std::move(base), std::move(adapters), config);
}

}  // namespace hexlm
