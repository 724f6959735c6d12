#include "runtime/model.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <mutex>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "formats/check_finite.hpp"
#include "formats/gguf.hpp"
#include "formats/source_weights.hpp"
#include "quantization/source_model.hpp"
#include "runtime/model_files.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

Status check_folder(const std::string& folder) {
  std::error_code error;
  if (is_gguf_path(folder) && fs::is_regular_file(folder, error)) return {};
  if (fs::is_directory(folder, error)) {
    if (Package::is_package(folder) || fs::exists(fs::path(folder) / "config.json", error)) return {};
    return fail(
        ErrorCode::bad_input,
        fmt::format("{} holds neither a manifest.json (a package) nor a config.json (a checkpoint)", folder),
        "name a package that `hexlm export` wrote, or a Hugging Face checkpoint folder");
  }
  const char* reason = fs::exists(folder, error) ? "is not a folder" : "does not exist";
  return fail(ErrorCode::bad_input, fmt::format("the model folder {} {}", folder, reason),
              "name a package that `hexlm export` wrote, or a Hugging Face checkpoint folder");
}

/// The file a weight lies in, for messages.
std::string file_of(const WeightSource& weights, const WeightView& weight) {
  const auto* source = dynamic_cast<const SourceWeights*>(&weights);
  return source != nullptr ? source->file_of(weight) : weights.origin();
}

Status check_shapes(const Graph& graph, const WeightSource& weights) {
  for (const Parameter& parameter : graph.parameters()) {
    HEXLM_ASSIGN(const WeightView weight, weights.describe(parameter.name));
    if (weight.shape == parameter.shape) continue;
    return fail(ErrorCode::bad_input,
                fmt::format("{}: tensor '{}' has shape {}, config.json asks for {}", file_of(weights, weight),
                            weight.data.name.empty() ? parameter.name : weight.data.name,
                            format_shape(weight.shape), format_shape(parameter.shape)),
                "config.json and the weights belong to different models: download both again");
  }
  return {};
}

/// The first parameter, in graph order, that holds NaN or infinity, however the threads came to it.
Status check_values(const Graph& graph, const WeightSource& weights, int threads) {
  ThreadPool pool(threads);
  std::mutex mutex;
  std::optional<std::pair<int64_t, Error>> first;
  const auto check = [&](int64_t index) -> Status {
    HEXLM_ASSIGN(const WeightView weight, weights.find(graph.parameters()[static_cast<size_t>(index)].name));
    Status status = check_finite(weight, file_of(weights, weight));
    weights.release(weight);
    return status;
  };
  pool.run(static_cast<int64_t>(graph.parameters().size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      Status status = check(i);
      if (status) continue;
      const std::lock_guard lock(mutex);
      if (!first || i < first->first) first.emplace(i, std::move(status).error());
    }
  });
  if (first) return tl::unexpected<Error>(std::move(first->second));
  return {};
}

int64_t elements_of(const Graph& graph) {
  int64_t count = 0;
  for (const Parameter& parameter : graph.parameters()) {
    int64_t elements = 1;
    for (const int64_t size : parameter.shape) elements *= size;
    count += elements;
  }
  return count;
}

Status check_tokenizer(const Tokenizer& tokenizer, const ModelConfig& config, const std::string& path) {
  if (tokenizer.size() <= config.text.vocabulary_size) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("{} has ids up to {}, the model's vocabulary {} rows", path, tokenizer.size() - 1,
                          config.text.vocabulary_size),
              "the tokenizer belongs to another model: take the one of this checkpoint");
}

void add_eos(std::vector<int32_t>& tokens, int64_t id) {
  const auto token = static_cast<int32_t>(id);
  if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
}

}  // namespace

Status Model::open_package(const ModelOpenOptions& options) {
  if (!options.merged_adapters.empty()) {
    return fail(ErrorCode::unsupported,
                fmt::format("{} is a package: adapters are not merged into quantized weights", folder_),
                "merge them while exporting, or apply them unmerged with `hexlm run --adapter`");
  }
  HEXLM_ASSIGN(std::shared_ptr<const Package> package,
               Package::open(folder_, options.verify, options.threads));
  const Manifest& manifest = package->manifest();
  HEXLM_ASSIGN(config_, parse_model_config(manifest.configuration, folder_ + "/manifest.json"));
  const std::string settings_path = (fs::path(folder_) / "config.json").string();
  std::error_code error;
  if (fs::exists(settings_path, error)) {
    HEXLM_ASSIGN(settings_, read_json(settings_path));
    if (!settings_.is_object()) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: expected a JSON object, got {}", settings_path, settings_.type_name()));
    }
  }
  weights_ = package;
  package_ = std::move(package);
  return {};
}

Status Model::open_checkpoint(const ModelOpenOptions& options) {
  HEXLM_ASSIGN(SourceModel source, open_source_model(folder_, options.merged_adapters, options.rotated));
  weights_ = std::move(source.weights);
  files_ = std::move(source.files);
  config_ = std::move(source.config);
  return {};
}

Status Model::open_text_files() {
  const bool from_file = is_gguf_path(folder_);
  HEXLM_ASSIGN(generation_,
               from_file ? generation_config_of(files_, folder_) : read_generation_config(folder_));
  for (const int64_t id : config_.text.eos_tokens) add_eos(generation_.eos_tokens, id);
  const std::string tokenizer_path = (fs::path(folder_) / "tokenizer.json").string();
  std::error_code error;
  const auto held = files_.find("tokenizer.json");
  const bool is_held = held != files_.end();
  if (is_held || fs::exists(tokenizer_path, error)) {
    HEXLM_ASSIGN(Tokenizer tokenizer,
                 is_held ? Tokenizer::parse(held->second, folder_) : Tokenizer::load(tokenizer_path));
    HEXLM_TRY(check_tokenizer(tokenizer, config_, tokenizer_path));
    tokenizer_.emplace(std::move(tokenizer));
  }
  HEXLM_ASSIGN(ChatFiles chat, from_file ? chat_files_of(files_, folder_) : read_chat_files(folder_));
  special_tokens_ = std::move(chat.special_tokens);
  const auto eos = special_tokens_.find("eos_token");
  if (tokenizer_ && eos != special_tokens_.end()) {
    const std::optional<int32_t> id = tokenizer_->token_id(eos->get<std::string>());
    if (id) add_eos(generation_.eos_tokens, *id);
  }
  if (!chat.source) return {};
  Result<ChatTemplate> parsed = ChatTemplate::parse(*chat.source, chat.origin);
  if (parsed) {
    chat_template_.emplace(*std::move(parsed));
  } else {
    chat_template_error_ = parsed.error();
  }
  return {};
}

Result<std::shared_ptr<const Model>> Model::open(const std::string& folder, const ModelOpenOptions& options) {
  HEXLM_TRY(check_folder(folder));
  std::shared_ptr<Model> model(new Model());
  model->folder_ = folder;
  model->settings_ = Json::object();
  HEXLM_TRY(Package::is_package(folder) ? model->open_package(options) : model->open_checkpoint(options));
  apply_checkpoint_facts(model->config_, model->weights_->contains("lm_head.weight"));
  HEXLM_TRY(resolve_vision(model->config_, model->weights_->contains(tower_weight), folder));
  // A package's export said them.
  if (!model->is_package()) {
    for (const std::string& text : model->config_.notes) log_info("note: " + text);
  }
  HEXLM_ASSIGN(Graph graph, build_text_graph(model->config_));
  model->graph_ = std::make_shared<const Graph>(std::move(graph));
  HEXLM_TRY(check_shapes(*model->graph_, *model->weights_));
  if (model->config_.vision) {
    HEXLM_ASSIGN(Graph tower, build_vision_graph(model->config_));
    model->vision_graph_ = std::make_shared<const Graph>(std::move(tower));
    HEXLM_TRY(check_shapes(*model->vision_graph_, *model->weights_));
  }
  HEXLM_TRY(model->open_text_files());
  // A package's checksums were compared when it was opened, and export refuses NaN.
  if (options.verify && !model->is_package()) {
    HEXLM_TRY(check_values(*model->graph_, *model->weights_, options.threads));
  }
  return std::shared_ptr<const Model>(std::move(model));
}

Status Model::verify_vision(int threads) const {
  if (vision_graph_ == nullptr) return {};
  if (package_ != nullptr) return package_->verify_tensors(vision_file, threads);
  return check_values(*vision_graph_, *weights_, threads);
}

uint64_t Model::bytes_of(const Graph& graph) const {
  uint64_t bytes = 0;
  for (const Parameter& parameter : graph.parameters()) {
    const auto form = stored_form(parameter);
    if (form) bytes += form->bytes;
  }
  return bytes;
}

uint64_t Model::weight_bytes() const { return bytes_of(*graph_) + vision_weight_bytes(); }

uint64_t Model::vision_weight_bytes() const {
  return vision_graph_ == nullptr ? 0 : bytes_of(*vision_graph_);
}

Result<Model::StoredForm> Model::stored_form(const Parameter& parameter) const {
  const PackageTensor* tensor = package_ == nullptr ? nullptr : package_->find_tensor(parameter.name);
  if (tensor != nullptr) return StoredForm{tensor->codec, tensor->stored_bytes};
  HEXLM_ASSIGN(const WeightView weight, weights_->describe(parameter.name));
  return StoredForm{weight.codec, weight.stored_bytes()};
}

int64_t Model::parameter_count() const {
  return elements_of(*graph_) + (vision_graph_ == nullptr ? 0 : elements_of(*vision_graph_));
}

double Model::bits_per_weight() const {
  const int64_t count = parameter_count();
  return count == 0 ? 0 : 8.0 * static_cast<double>(weight_bytes()) / static_cast<double>(count);
}

int64_t Model::max_context() const {
  const RopeConfig& rope = config_.text.rope;
  if (rope.type != RopeConfig::Type::yarn) return config_.text.max_positions;
  const double extended = rope.factor * static_cast<double>(rope.original_max_position);
  // Positions are 32-bit.
  return std::max(config_.text.max_positions, static_cast<int64_t>(std::min(extended, 2147483647.0)));
}

int64_t Model::usable_vocabulary() const {
  const int64_t rows = config_.text.vocabulary_size;
  return tokenizer_ ? std::min<int64_t>(rows, tokenizer_->size()) : rows;
}

}  // namespace hexlm
