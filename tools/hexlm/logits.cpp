#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <map>

#include "evaluation/perplexity.hpp"
#include "formats/safetensors.hpp"
#include "hexlm/common.hpp"
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
  std::vector<int32_t> ids;
  int64_t last = 0;  ///< rows of logits to write
  bool hidden = false;
  std::string output;
};

std::vector<TensorPlan> file_plan(const Request& request, const Model& model) {
  const TextConfig& config = model.config().text;
  std::vector<TensorPlan> plan = {{"logits", DType::f32, {request.last, config.vocabulary_size}}};
  if (!request.hidden) return plan;
  const auto tokens = static_cast<int64_t>(request.ids.size());
  for (size_t i = 0; i < model.graph()->hidden().size(); ++i) {
    plan.push_back({fmt::format("hidden.{}", i), DType::f32, {tokens, config.hidden_size}});
  }
  return plan;
}

Status write_hidden(SafetensorsWriter& writer, const HiddenRecorder& recorder, const Request& request,
                    int64_t hidden_size) {
  const size_t expected = request.ids.size() * static_cast<size_t>(hidden_size);
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

/// Runs the ids and writes the file; returns Σ −log p of every token but the first.
Result<double> write_logits(Session& session, const Request& request) {
  const Model& model = session.model();
  HEXLM_ASSIGN(SafetensorsWriter writer,
               SafetensorsWriter::create(request.output, file_plan(request, model), {{"format", "pt"}}, 1));
  HiddenRecorder recorder(*model.graph());
  const auto count = static_cast<int64_t>(request.ids.size());
  const auto vocabulary = static_cast<size_t>(model.config().text.vocabulary_size);
  double sum = 0;
  // Every row is computed, as the likelihood is that of the whole text; `last` only bounds the file.
  const auto take = [&](int64_t first, int64_t rows, std::span<const float> logits) -> Status {
    for (int64_t row = 0; row < rows; ++row) {
      const auto line = logits.subspan(static_cast<size_t>(row) * vocabulary, vocabulary);
      const int64_t next = first + row + 1;
      if (next < count) sum += negative_log_likelihood(line, request.ids[static_cast<size_t>(next)]);
      if (first + row >= count - request.last) HEXLM_TRY(writer.write(std::as_bytes(line)));
    }
    return {};
  };
  HEXLM_TRY(session.forward(request.ids, count, take, request.hidden ? &recorder : nullptr));
  if (request.hidden) HEXLM_TRY(write_hidden(writer, recorder, request, model.config().text.hidden_size));
  HEXLM_TRY(writer.commit());
  return sum;
}

}  // namespace

Result<int> run_logits(Arguments& arguments) {
  HEXLM_TRY(require(arguments, "ids"));
  HEXLM_TRY(require(arguments, "output"));
  Request request;
  HEXLM_ASSIGN(request.ids, read_ids(arguments.text("ids")));
  const auto count = static_cast<int64_t>(request.ids.size());
  const int64_t last = arguments.integer("last");
  if (last > count) {
    return fail(ErrorCode::usage, fmt::format("--last {} is more than the {} tokens given", last, count));
  }
  request.last = last == 0 ? count : last;
  request.hidden = arguments.toggle("hidden");
  request.output = arguments.text("output");
  HEXLM_TRY(keep_model_files(request.output, arguments.positional(0)));
  HEXLM_ASSIGN(const Opened opened, open_session(arguments));
  HEXLM_ASSIGN(const double sum, write_logits(*opened.session, request));
  // One token predicts nothing that was given.
  const bool scored = count > 1;
  const double mean = scored ? sum / static_cast<double>(count - 1) : 0;
  Report report;
  report.json = {{"tokens", count},
                 {"nll_mean", scored ? Json(mean) : Json()},
                 {"output", request.output},
                 {"placement", opened.session->placement()}};
  report.table.columns = {{"tokens", true}, {"nll_mean", true}, {"output"}};
  report.table.rows = {{std::to_string(count), scored ? fmt::format("{:.6f}", mean) : "-", request.output}};
  print(report, format_of(arguments));
  print_placement(*opened.session);
  return 0;
}

}  // namespace hexlm::tool
