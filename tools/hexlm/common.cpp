#include "hexlm/common.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "hexlm/standard_input.hpp"

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

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string describe(const GenerateResult& result, int64_t reused) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  };
  const int64_t run = result.prompt_tokens - reused;
  const auto produced = static_cast<int64_t>(result.token_ids.size());
  const std::string part = reused == 0 ? std::string() : fmt::format(" ({} new)", run);
  return fmt::format("prompt {} tokens{}, {:.2f} s ({:.1f} tok/s); answer {} tokens, {:.2f} s ({:.1f} tok/s)",
                     result.prompt_tokens, part, result.prefill_s, rate(run, result.prefill_s), produced,
                     result.decode_s, rate(produced, result.decode_s));
}

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

SessionOptions session_options(const Arguments& arguments) {
  SessionOptions options;
  options.backend = arguments.text("backend");
  options.threads = arguments.threads();
  options.precision = precision_of(arguments);
  options.context = arguments.integer("context");
  options.chunk = arguments.integer("chunk");
  return options;
}

Result<Opened> open_timed_model(Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  HEXLM_ASSIGN(auto model, open_model(arguments));
  return Opened{std::move(model), nullptr, seconds_since(start)};
}

Status start_session(const Arguments& arguments, Opened& opened) {
  const auto start = std::chrono::steady_clock::now();
  const SessionOptions options = session_options(arguments);
  if (arguments.text("memory") != "low") {
    return fail(ErrorCode::unsupported,
                fmt::format("memory {} is not supported: the {} backend keeps weights as they are stored",
                            arguments.text("memory"), options.backend),
                "use --memory low");
  }
  HEXLM_ASSIGN(opened.session, Session::create(opened.model, options));
  opened.load_s += seconds_since(start);
  return {};
}

Result<Opened> open_session(Arguments& arguments) {
  HEXLM_ASSIGN(Opened opened, open_timed_model(arguments));
  HEXLM_TRY(start_session(arguments, opened));
  return opened;
}

void print_placement(const std::string& placement) {
  stdout_works();  // the result comes first; a failure is kept for the end
  const std::string line = fmt::format("placement: {}\n", placement);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void print_placement(const Session& session) { print_placement(session.placement()); }

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
  StandardInput input;
  return input.rest();
}

Status require(const Arguments& arguments, std::string_view flag) {
  if (arguments.has(flag)) return {};
  return fail(ErrorCode::usage, fmt::format("{} needs --{}", arguments.verb().name, flag),
              fmt::format("`hexlm {} --help` shows examples", arguments.verb().name));
}

}  // namespace hexlm::tool
