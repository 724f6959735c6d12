#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "hexlm/flags.hpp"

namespace hexlm::tool {

/// Texts given for each flag, by flag name; toggles as "true" or "false".
using FlagValues = std::map<std::string, std::vector<std::string>, std::less<>>;

/// What a value of --threads means on this machine.
struct ThreadSetting {
  int threads = 1;
  std::vector<int> processors;  ///< that threads stay on; empty: any
  std::string reason;           ///< how auto came to it; empty for a number
};
/// `text` is a number (0: every processor) or auto.
ThreadSetting read_threads(std::string_view text);

/// One verb's command line and settings. Every source of settings is a layer, asked in order: flags, HEXLM_*
/// variables, the --config file, the package's config.json, its generation_config.json, the flag's default.
/// A layer is checked whole when it is added, so that reading a value cannot fail.
class Arguments {
 public:
  /// Errors: usage, naming where the value came from, what was expected and the value.
  static Result<Arguments> create(const Verb& verb, FlagValues flags, std::vector<std::string> positionals);

  const Verb& verb() const { return *verb_; }
  /// Adds what JSON settings say, below the layers so far. A key may be any verb's setting; those of other
  /// verbs are ignored. Errors, of the given kind (usage for what the user wrote for this run, bad_input for
  /// a model's own files): an unknown key, naming the nearest, and values of another type or out of range.
  Status add_settings(const Json& settings, const std::string& origin, ErrorCode kind);

  /// The same with these flags given, checked values above all others: one setting of a grid.
  Arguments with(const FlagValues& values) const;

  /// The whole command line, for a package's record of how it was made.
  const std::vector<std::string>& command() const { return command_; }
  void set_command(std::vector<std::string> command) { command_ = std::move(command); }
  /// "" when an optional one was not given.
  std::string positional(size_t index) const;
  /// Whether any layer gives a value; a default does not count.
  bool has(std::string_view flag) const { return find(flag) != nullptr; }
  bool toggle(std::string_view flag) const;
  std::string text(std::string_view flag) const;
  std::vector<std::string> texts(std::string_view flag) const;
  /// Defaults that are only described ("(the model's)") read as 0.
  int64_t integer(std::string_view flag) const;
  double number(std::string_view flag) const;
  std::vector<int64_t> integers(std::string_view flag) const;
  ThreadSetting thread_setting() const;
  /// Of thread_setting() the number, for work that isn't kept on processors.
  int threads() const;

 private:
  struct Layer {
    std::string origin;  ///< "" for the command line
    FlagValues values;
  };
  explicit Arguments(const Verb& verb) : verb_(&verb) {}
  Status add_layer(Layer layer, ErrorCode kind);
  Status add_environment();
  const std::vector<std::string>* find(std::string_view flag) const;

  const Verb* verb_;
  std::vector<std::string> positionals_;
  std::vector<std::string> command_;
  std::vector<Layer> layers_;
};

/// Errors: usage.
Result<double> parse_number(std::string_view text);

}  // namespace hexlm::tool
