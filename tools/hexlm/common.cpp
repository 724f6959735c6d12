#include "hexlm/common.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "hexlm/standard_input.hpp"
#include "quantization/runtime_adapters.hpp"
#include "tokenizer/utf8.hpp"

namespace hexlm::tool {
namespace {

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

/// One entry of a list of ids. `what` says where the list came from.
Result<int32_t> checked_id(int64_t id, size_t index, const std::string& what, ErrorCode kind) {
  if (id >= 0 && id <= INT32_MAX) return static_cast<int32_t>(id);
  return fail(kind,
              fmt::format("{}: entry {} is {}, expected a token id from 0 to {}", what, index, id, INT32_MAX),
              "give ids as `hexlm tokenize` prints them");
}

/// The ids of a JSON file: an array, or {"ids": […]}.
Result<std::vector<int32_t>> ids_of(const Json& json, const std::string& origin) {
  const Json& list = json.is_object() && json.contains("ids") ? json["ids"] : json;
  if (!list.is_array()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: expected a JSON array of token ids, got {}", origin, list.type_name()),
                "write [1, 2, 3] or {\"ids\": [1, 2, 3]}");
  }
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool fits = list[i].is_number_integer() &&
                      (!list[i].is_number_unsigned() || list[i].get<uint64_t>() <= uint64_t{INT64_MAX});
    if (!fits) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: entry {} is {}, expected a token id from 0 to {}", origin, i,
                              list[i].dump(-1, ' ', false, Json::error_handler_t::replace), INT32_MAX),
                  "write [1, 2, 3] or {\"ids\": [1, 2, 3]}");
    }
    HEXLM_ASSIGN(const int32_t id, checked_id(list[i].get<int64_t>(), i, origin, ErrorCode::bad_input));
    ids.push_back(id);
  }
  if (!ids.empty()) return ids;
  return fail(ErrorCode::bad_input, fmt::format("{}: holds no token id", origin), "give at least one id");
}

constexpr const char* list_hint = "give a JSON file, or a list such as 1,2,3 or [1, 2, 3]";

/// The text between the brackets of a list, which come as a pair or not at all.
Result<std::string_view> without_brackets(const std::string& text) {
  const std::string_view spaces = " \t\r\n";
  std::string_view inner = text;
  inner.remove_prefix(std::min(inner.find_first_not_of(spaces), inner.size()));
  while (!inner.empty() && spaces.find(inner.back()) != std::string_view::npos) inner.remove_suffix(1);
  const bool opens = inner.starts_with('[');
  const bool closes = inner.ends_with(']') && inner.size() > 1;
  if (opens && closes) inner = inner.substr(1, inner.size() - 2);
  if (opens != closes || inner.find_first_of("[]") != std::string_view::npos) {
    return fail(ErrorCode::usage,
                fmt::format("--ids: expected one pair of brackets or none, got \"{}\"", text), list_hint);
  }
  return inner;
}

/// "1,2,3", "1 2 3" or a mixture: between two ids stands one comma, or spaces.
Result<std::vector<int32_t>> parse_id_list(const std::string& text) {
  HEXLM_ASSIGN(const std::string_view inner, without_brackets(text));
  std::vector<int32_t> ids;
  std::string spaced(inner);
  std::replace_if(
      spaced.begin(), spaced.end(), [](char c) { return c == '\t' || c == '\r' || c == '\n'; }, ' ');
  if (spaced.find_first_not_of(' ') == std::string::npos) {
    return fail(ErrorCode::usage, "--ids: holds no token id", list_hint);
  }
  for (const std::string_view entry : split(spaced, ',')) {
    size_t found = 0;
    for (const std::string_view part : split(entry, ' ')) {
      if (part.empty()) continue;
      int64_t id = 0;
      if (!parse_integer(part, id)) {
        return fail(ErrorCode::usage,
                    fmt::format("--ids: entry {} is \"{}\", expected a token id from 0 to {}", ids.size(),
                                part, INT32_MAX),
                    list_hint);
      }
      HEXLM_ASSIGN(const int32_t checked, checked_id(id, ids.size(), "--ids", ErrorCode::usage));
      ids.push_back(checked);
      ++found;
    }
    if (found > 0) continue;
    return fail(ErrorCode::usage, fmt::format("--ids: entry {} is empty, expected a token id", ids.size()),
                list_hint);
  }
  return ids;
}

}  // namespace

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

GenerateOptions generate_options(const Arguments& arguments, const Model& model) {
  GenerateOptions options;
  options.sampling.temperature = static_cast<float>(arguments.number("temperature"));
  options.sampling.top_k = static_cast<int32_t>(arguments.integer("top-k"));
  options.sampling.top_p = static_cast<float>(arguments.number("top-p"));
  options.sampling.repetition_penalty = static_cast<float>(arguments.number("repetition-penalty"));
  options.sampling.seed = static_cast<uint64_t>(arguments.integer("seed"));
  options.max_new_tokens = arguments.integer("max-new-tokens");
  options.stop = arguments.texts("stop");
  options.eos_tokens = model.generation().eos_tokens;
  return options;
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
  HEXLM_TRY(
      arguments.add_settings(model->settings(), model->folder() + "/config.json", ErrorCode::bad_input));
  HEXLM_TRY(arguments.add_settings(generation_settings(model->generation()),
                                   model->folder() + "/generation_config.json", ErrorCode::bad_input));
  return model;
}

Precision precision_of(const Arguments& arguments, std::string_view flag) {
  const std::string name = arguments.text(flag);
  if (name == "low") return Precision::low;
  return name == "high" ? Precision::high : Precision::normal;
}

SessionOptions session_options(const Arguments& arguments) {
  SessionOptions options;
  options.backend = arguments.text("backend");
  const ThreadSetting threads = arguments.thread_setting();
  options.threads = threads.threads;
  options.processors = threads.processors;
  options.precision = precision_of(arguments, "precision");
  options.cache = parse_cache_type(arguments.text("kv-cache"));
  options.context = arguments.integer("context");
  options.chunk = arguments.integer("chunk");
  return options;
}

std::string describe_settings(const Arguments& arguments) {
  const ThreadSetting threads = arguments.thread_setting();
  const std::string how = threads.reason.empty() ? std::string() : fmt::format(" (auto: {})", threads.reason);
  const SessionOptions options = session_options(arguments);
  return fmt::format("threads {}{}\nkv cache {}", threads.threads, how,
                     to_string(options.cache.value_or(default_cache(options.precision))));
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
  HEXLM_TRY(set_adapters(arguments, *opened.session));
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
  return parse_id_list(text);
}

std::string format_ids(const std::vector<int32_t>& ids) { return fmt::format("[{}]", fmt::join(ids, ", ")); }

Result<std::string> read_text(const std::string& path) {
  if (path != "-") return read_file(path);
  StandardInput input;
  return input.rest();
}

Status check_utf8(std::string_view text, std::string_view what) {
  const std::optional<size_t> at = find_invalid_utf8(text);
  if (!at) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("{}: byte {} is 0x{:02x}, expected UTF-8", what, *at,
                          static_cast<unsigned char>(text[*at])),
              "convert the text to UTF-8");
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

Status set_adapters(const Arguments& arguments, Session& session) {
  const Model& model = session.model();
  HEXLM_ASSIGN(const std::vector<AdapterChoice> adapters, read_adapters(arguments));
  const bool rotated = model.is_package() && model.package()->manifest().provenance.contains("rotation");
  if (rotated && !adapters.empty()) {
    return fail(ErrorCode::unsupported,
                fmt::format("{} was exported with --rotate: adapters of its checkpoint do not fit it",
                            model.folder()),
                "merge the adapter while exporting: `export --rotate --adapter DIR`");
  }
  HEXLM_ASSIGN(std::vector<LowRankUpdate> updates,
               open_runtime_updates(adapters, *model.graph(), *model.weights()));
  return session.set_adapters(std::move(updates));
}

Status require(const Arguments& arguments, std::string_view flag) {
  if (arguments.has(flag)) return {};
  return fail(ErrorCode::usage, fmt::format("{} needs --{}", arguments.verb().name, flag),
              fmt::format("`hexlm {} --help` shows examples", arguments.verb().name));
}

}  // namespace hexlm::tool
