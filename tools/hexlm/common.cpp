#include "hexlm/common.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "quantization/runtime_adapters.hpp"

namespace hexlm::tool {
namespace {

Precision precision_of(const Arguments& arguments) {
  const std::string name = arguments.text("precision");
  if (name == "low") return Precision::low;
  return name == "high" ? Precision::high : Precision::normal;
}

/// generation_config.json as settings, below everything that the user said.
Json generation_settings(const GenerationDefaults& generation) {
  const SamplingOptions& sampling = generation.sampling;
  Json settings = {{"temperature", sampling.temperature},
                   {"top_k", sampling.top_k},
                   {"top_p", sampling.top_p},
                   {"min_p", sampling.min_p},
                   {"repetition_penalty", sampling.repetition_penalty},
                   {"presence_penalty", sampling.presence_penalty},
                   {"frequency_penalty", sampling.frequency_penalty}};
  if (generation.max_new_tokens) settings["max_new_tokens"] = *generation.max_new_tokens;
  return settings;
}

Result<std::vector<int32_t>> ids_of(const Json& json, const std::string& origin) {
  const Json& list = json.is_object() && json.contains("ids") ? json["ids"] : json;
  std::vector<int32_t> ids;
  bool valid = list.is_array();
  for (size_t i = 0; valid && i < list.size(); ++i) {
    valid = list[i].is_number_integer() && list[i] >= 0 && list[i] <= INT32_MAX;
    if (valid) ids.push_back(list[i].get<int32_t>());
  }
  if (valid) return ids;
  return fail(ErrorCode::bad_input, fmt::format("{}: expected a JSON array of token ids", origin));
}

}  // namespace

Result<std::shared_ptr<const Model>> open_model(Arguments& arguments) {
  ModelOpenOptions options;
  options.threads = arguments.threads();
  options.verify = !arguments.toggle("no-verify");
  HEXLM_ASSIGN(auto model, Model::open(arguments.positional(0), options));
  HEXLM_TRY(arguments.add_settings(model->settings(), model->folder() + "/config.json"));
  HEXLM_TRY(arguments.add_settings(generation_settings(model->generation()),
                                   model->folder() + "/generation_config.json"));
  return model;
}

Result<Opened> open_session(Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  HEXLM_ASSIGN(auto model, open_model(arguments));
  SessionOptions options;
  options.backend = arguments.text("backend");
  options.threads = arguments.threads();
  options.precision = precision_of(arguments);
  options.context = arguments.integer("context");
  options.chunk = arguments.integer("chunk");
  if (arguments.text("memory") != "low") {
    return fail(ErrorCode::unsupported,
                fmt::format("memory {} is not supported: the {} backend keeps weights as they are stored",
                            arguments.text("memory"), options.backend),
                "use --memory low");
  }
  HEXLM_ASSIGN(auto session, Session::create(model, options));
  HEXLM_ASSIGN(const std::vector<AdapterChoice> adapters, read_adapters(arguments));
  HEXLM_ASSIGN(std::vector<LowRankUpdate> updates,
               open_runtime_updates(adapters, *model->graph(), *model->weights()));
  HEXLM_TRY(session->set_adapters(std::move(updates)));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return Opened{std::move(model), std::move(session), seconds};
}

void print_placement(const Session& session) {
  std::fflush(stdout);
  const std::string line = fmt::format("placement: {}\n", session.placement());
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Result<std::vector<int32_t>> read_ids(const std::string& text) {
  if (text.find_first_not_of("0123456789, []\t\r\n-") != std::string::npos) {
    HEXLM_ASSIGN(const Json json, read_json(text));
    return ids_of(json, text);
  }
  std::string list = text;
  std::replace_if(list.begin(), list.end(), [](char c) { return c != '-' && (c < '0' || c > '9'); }, ' ');
  std::vector<int32_t> ids;
  for (const std::string_view part : split(list, ' ')) {
    if (part.empty()) continue;
    int64_t id = 0;
    if (!parse_integer(part, id) || id < 0 || id > INT32_MAX) {
      return fail(ErrorCode::usage, fmt::format("--ids: \"{}\" is no token id", part),
                  "give a JSON file, or a list such as 1,2,3");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::string format_ids(const std::vector<int32_t>& ids) { return fmt::format("[{}]", fmt::join(ids, ", ")); }

Result<std::string> read_text(const std::string& path) {
  if (path != "-") return read_file(path);
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), stdin)) text.append(buffer, count);
  if (std::ferror(stdin) != 0) return fail(ErrorCode::runtime, "can't read stdin");
  return text;
}

Result<std::vector<AdapterChoice>> read_adapters(const Arguments& arguments) {
  const std::vector<std::string> folders = arguments.texts("adapter");
  const std::vector<std::string> scales = arguments.texts("adapter-scale");
  if (scales.size() > 1 && scales.size() != folders.size()) {
    return fail(ErrorCode::usage, fmt::format("{} adapters with {} scales", folders.size(), scales.size()),
                "give --adapter-scale once for all adapters, or once for each in their order");
  }
  if (folders.empty() && !scales.empty()) {
    return fail(ErrorCode::usage, "--adapter-scale without --adapter", "name the adapter folder");
  }
  std::vector<AdapterChoice> choices;
  for (size_t i = 0; i < folders.size(); ++i) {
    double weight = 1;
    if (!scales.empty()) {
      HEXLM_ASSIGN(weight, parse_number(scales.size() == 1 ? scales[0] : scales[i]));
    }
    choices.push_back({folders[i], weight});
  }
  return choices;
}

Status require(const Arguments& arguments, std::string_view flag) {
  if (arguments.has(flag)) return {};
  return fail(ErrorCode::usage, fmt::format("{} needs --{}", arguments.verb().name, flag),
              fmt::format("`hexlm {} --help` shows examples", arguments.verb().name));
}

}  // namespace hexlm::tool
