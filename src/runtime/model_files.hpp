#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "runtime/model.hpp"

namespace hexlm {

/// What generation_config.json says; transformers' defaults for what it leaves out (temperature 1, top_k 50,
/// top_p 1; greedy unless `do_sample` is true). Errors: bad_input naming `origin`, key and value.
Result<GenerationDefaults> parse_generation_config(const Json& json, const std::string& origin);
/// As above from the folder's file; the defaults when there is none.
Result<GenerationDefaults> read_generation_config(const std::string& folder);

/// A model's chat template as text and the special tokens that templates may name.
struct ChatFiles {
  std::optional<std::string> source;
  std::string origin;   ///< file the template came from
  Json special_tokens;  ///< {"bos_token": "…", "eos_token": "…", …}, those that exist
};

/// chat_template.jinja, else chat_template.json, else tokenizer_config.json's `chat_template` (a string, or a
/// list of {name, template} of which "default" counts). Errors: bad_input naming file and key.
Result<ChatFiles> read_chat_files(const std::string& folder);

/// The same of files that are held in memory, by name.
Result<GenerationDefaults> generation_config_of(const std::map<std::string, std::string>& files,
                                                const std::string& origin);
Result<ChatFiles> chat_files_of(const std::map<std::string, std::string>& files, const std::string& origin);

}  // namespace hexlm
