#include <array>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <map>

#include "evaluation/perplexity.hpp"
#include "formats/safetensors.hpp"
#include "hexlm/common.hpp"
#include "hexlm/images.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {
namespace {

/// Keeps the values that the graph marks as hidden, as the steps produce them.
class HiddenRecorder : public Observer {
 public:
  explicit HiddenRecorder(const Graph& graph) : rows_(graph.hidden().size()) {
    for (size_t i = 0; i < graph.hidden().size(); ++i) index_[graph.value(graph.hidden()[i]).name] = i;
  }
  void after(const Node&, const Value& value, std::span<const float> data, const SymbolValues&) override {
    const auto found = index_.find(value.name);
    if (found == index_.end()) return;
    std::vector<float>& rows = rows_[found->second];
    rows.insert(rows.end(), data.begin(), data.end());
  }
  const std::vector<std::vector<float>>& rows() const { return rows_; }

 private:
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<std::vector<float>> rows_;
};

/// Results never land in the model's own folder, where they could replace its weights.
Status keep_model_files(const std::string& output, const std::string& model) {
  const std::filesystem::path parent = std::filesystem::absolute(output).parent_path();
  std::error_code error;
  if (!std::filesystem::equivalent(parent, model, error)) return {};
  return fail(ErrorCode::usage,
              fmt::format("{}: expected a file outside the model's folder {}", output, model),
              "choose another folder for --output");
}

struct Request {
  Prompt prompt;
  int64_t last = 0;  ///< rows of logits to write
  bool hidden = false;
  std::string output;
};

std::vector<TensorPlan> file_plan(const Request& request, const Model& model) {
  const TextConfig& config = model.config().text;
  std::vector<TensorPlan> plan = {{"logits", DType::f32, {request.last, config.vocabulary_size}}};
  if (request.hidden) {
    const auto tokens = static_cast<int64_t>(request.prompt.tokens.size());
    for (size_t i = 0; i < model.graph()->hidden().size(); ++i) {
      plan.push_back({fmt::format("hidden.{}", i), DType::f32, {tokens, config.hidden_size}});
    }
  }
  if (!request.prompt.images.empty()) {
    int64_t rows = 0;
    for (const auto& image : request.prompt.images) rows += image->tokens;
    plan.push_back({"image_features", DType::f32, {rows, config.hidden_size}});
    plan.push_back({"image_grid_thw", DType::i64, {static_cast<int64_t>(request.prompt.images.size()), 3}});
  }
  return plan;
}

/// As transformers has them: the rows of all images after one another, and their sizes in patches.
Status write_images(SafetensorsWriter& writer, const Prompt& prompt) {
  for (const auto& image : prompt.images) {
    HEXLM_TRY(writer.write(std::as_bytes(std::span(image->features))));
  }
  for (const auto& image : prompt.images) {
    const std::array<int64_t, 3> sides = {image->grid.t, image->grid.h, image->grid.w};
    HEXLM_TRY(writer.write(std::as_bytes(std::span(sides))));
  }
  return {};
}

Status write_hidden(SafetensorsWriter& writer, const HiddenRecorder& recorder, const Request& request,
                    int64_t hidden_size) {
  const size_t expected = request.prompt.tokens.size() * static_cast<size_t>(hidden_size);
  for (size_t i = 0; i < recorder.rows().size(); ++i) {
    const std::vector<float>& rows = recorder.rows()[i];
    if (rows.size() != expected) {
      return fail(ErrorCode::runtime,
                  fmt::format("hidden.{} came as {} values, expected {}", i, rows.size(), expected));
    }
    HEXLM_TRY(writer.write(std::as_bytes(std::span(rows))));
  }
  return {};
}

/// Likelihood of the tokens that can be predicted: all but the first and those that stand for images.
struct Score {
  double sum = 0;  ///< Σ −log p
  int64_t tokens = 0;
};

/// Runs the prompt and writes the file.
Result<Score> write_logits(Session& session, const Request& request) {
  const Model& model = session.model();
  HEXLM_ASSIGN(SafetensorsWriter writer,
               SafetensorsWriter::create(request.output, file_plan(request, model), {{"format", "pt"}}, 1));
  HiddenRecorder recorder(*model.graph());
  const std::vector<int32_t>& ids = request.prompt.tokens;
  const auto count = static_cast<int64_t>(ids.size());
  const bool shows_images = !request.prompt.images.empty();
  const int32_t image_token = shows_images ? model.config().vision->image_token : -1;
  const auto vocabulary = static_cast<size_t>(model.config().text.vocabulary_size);
  Score score;
  // Every row is computed, as the likelihood is that of the whole text; `last` only bounds the file.
  const auto take = [&](int64_t first, int64_t rows, std::span<const float> logits) -> Status {
    for (int64_t row = 0; row < rows; ++row) {
      const auto line = logits.subspan(static_cast<size_t>(row) * vocabulary, vocabulary);
      const int64_t next = first + row + 1;
      const int32_t target = next < count ? ids[static_cast<size_t>(next)] : image_token;
      if (next < count && target != image_token) {
        score.sum += negative_log_likelihood(line, target);
        ++score.tokens;
      }
      if (first + row >= count - request.last) HEXLM_TRY(writer.write(std::as_bytes(line)));
    }
    return {};
  };
  HEXLM_TRY(session.forward(request.prompt, count, take, request.hidden ? &recorder : nullptr));
  if (request.hidden) HEXLM_TRY(write_hidden(writer, recorder, request, model.config().text.hidden_size));
  HEXLM_TRY(write_images(writer, request.prompt));
  HEXLM_TRY(writer.commit());
  return score;
}

}  // namespace

Result<int> run_logits(Arguments& arguments) {
  HEXLM_TRY(require(arguments, "ids"));
  HEXLM_TRY(require(arguments, "output"));
  Request request;
  HEXLM_ASSIGN(const std::vector<int32_t> ids, read_ids(arguments.text("ids")));
  request.hidden = arguments.toggle("hidden");
  request.output = arguments.text("output");
  HEXLM_TRY(keep_model_files(request.output, arguments.positional(0)));
  HEXLM_ASSIGN(Opened opened, open_timed_model(arguments));
  Images images(arguments, opened.model);
  HEXLM_ASSIGN(ImageList shown, images.encode(arguments.texts("image")));
  HEXLM_ASSIGN(request.prompt, prompt_of_ids(*opened.model, ids, std::move(shown)));
  images.release();
  const auto count = static_cast<int64_t>(request.prompt.tokens.size());
  const int64_t last = arguments.integer("last");
  if (last > count) {
    return fail(ErrorCode::usage, fmt::format("--last {} is more than the {} tokens given", last, count));
  }
  request.last = last == 0 ? count : last;
  HEXLM_TRY(start_session(arguments, opened));
  HEXLM_ASSIGN(const Score score, write_logits(*opened.session, request));
  // One token predicts nothing that was given.
  const bool scored = score.tokens > 0;
  const double mean = scored ? score.sum / static_cast<double>(score.tokens) : 0;
  Report report;
  report.json = {{"tokens", count},
                 {"nll_mean", scored ? Json(mean) : Json()},
                 {"output", request.output},
                 {"images", images.listed()},
                 {"placement", images.placement(*opened.session)}};
  report.table.columns = {{"tokens", true}, {"nll_mean", true}, {"output"}};
  report.table.rows = {{std::to_string(count), scored ? fmt::format("{:.6f}", mean) : "-", request.output}};
  print(report, format_of(arguments));
  print_placement(images.placement(*opened.session));
  return 0;
}

}  // namespace hexlm::tool
