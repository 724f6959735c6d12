#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "hexlm/arguments.hpp"
#include "hexlm/report.hpp"
#include "quantization/adapted_weights.hpp"
#include "runtime/generate.hpp"
#include "runtime/model.hpp"
#include "runtime/session.hpp"

namespace hexlm::tool {

inline constexpr const char* tool_version = HEXLM_VERSION;

/// A model and a session on it, as the verb's flags and the settings ask. The package's config.json and
/// generation_config.json become settings of `arguments` on the way.
struct Opened {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Session> session;
  double load_s = 0;  ///< seconds that both took
};
Result<std::shared_ptr<const Model>> open_model(Arguments& arguments);
/// What a flag of the values low, normal and high says.
Precision precision_of(const Arguments& arguments, std::string_view flag);
/// What the sampling flags that every generating verb has ask for, with the model's end tokens.
GenerateOptions generate_options(const Arguments& arguments, const Model& model);
/// What --backend, --threads, --precision, --context and --chunk ask for.
SessionOptions session_options(const Arguments& arguments);
Result<Opened> open_session(Arguments& arguments);
/// open_session in two steps, for work that can fail before a session is worth its time: the model alone,
/// then its session.
Result<Opened> open_timed_model(Arguments& arguments);
Status start_session(const Arguments& arguments, Opened& opened);

/// Seconds since `start`.
double seconds_since(std::chrono::steady_clock::time_point start);
/// "prompt 84 tokens (12 new), 0.10 s (840.0 tok/s); answer 20 tokens, 0.40 s (50.0 tok/s)": rates of what
/// was run; `reused` tokens of the prompt were not.
std::string describe(const GenerateResult& result, int64_t reused);

/// "placement: …" as the last line of stderr.
void print_placement(const std::string& placement);
void print_placement(const Session& session);

/// Token ids from a list ("1,2,3", "1 2 3", "[1, 2, 3]") or a JSON file (an array, or {"ids": […]}).
/// Errors, naming the entry and its value, and for an empty list: usage, bad_input for what a file holds.
Result<std::vector<int32_t>> read_ids(const std::string& text);
/// "[1, 2, 3]", which read_ids takes back.
std::string format_ids(const std::vector<int32_t>& ids);
/// A file's content, or stdin's for "-". Errors: bad_input.
Result<std::string> read_text(const std::string& path);

/// Errors: bad_input naming `what`, the first byte that is no UTF-8 and its offset.
Status check_utf8(std::string_view text, std::string_view what);
/// `--adapter` folders with their `--adapter-scale`: none (1), one for all, or one for each in order. Errors:
/// usage for another number of scales.
Result<std::vector<AdapterChoice>> read_adapters(const Arguments& arguments);
/// Applies them unmerged. Errors: those of read_adapters, open_runtime_updates and Session::set_adapters.
Status set_adapters(const Arguments& arguments, Session& session);

/// The error of a flag that must be given.
Status require(const Arguments& arguments, std::string_view flag);

}  // namespace hexlm::tool
