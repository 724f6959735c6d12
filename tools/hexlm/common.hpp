#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "hexlm/arguments.hpp"
#include "hexlm/report.hpp"
#include "quantization/adapted_weights.hpp"
#include "runtime/model.hpp"
#include "runtime/session.hpp"

namespace hexlm::tool {

inline constexpr const char* tool_version = HEXLM_VERSION;

/// A model and a session on it, as the verb's flags and the settings ask. The package's config.json and
/// generation_config.json become settings of `arguments` on the way.
struct Opened {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Session> session;
  double load_s = 0;  ///< both, from the start
};
Result<std::shared_ptr<const Model>> open_model(Arguments& arguments);
Result<Opened> open_session(Arguments& arguments);

/// "placement: …" as the last line of stderr.
void print_placement(const Session& session);

/// Token ids from a list ("1,2,3", "1 2 3", "[1, 2, 3]") or a JSON file (an array, or {"ids": […]}).
/// Errors: usage for a list that is none; bad_input for a file that is none.
Result<std::vector<int32_t>> read_ids(const std::string& text);
/// "[1, 2, 3]", which read_ids takes back.
std::string format_ids(const std::vector<int32_t>& ids);
/// A file's content, or stdin's for "-". Errors: bad_input.
Result<std::string> read_text(const std::string& path);

/// `--adapter` folders with their `--adapter-scale`: none (1), one for all, or one for each in order. Errors:
/// usage for another number of scales.
Result<std::vector<AdapterChoice>> read_adapters(const Arguments& arguments);

/// The error of a flag that must be given.
Status require(const Arguments& arguments, std::string_view flag);

}  // namespace hexlm::tool
