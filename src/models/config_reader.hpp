#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"

namespace hexlm {

/// Reads typed values of one object of a config.json. The first mistake is remembered (bad_input: file, key,
/// what was expected and what came) and later reads return their fallback, so that parsing reads as a list.
/// A null value counts as a missing one, as transformers writes unset options. `objects` are looked through
/// in order: a key of an earlier one wins (spec A.0, "look in rope_parameters, then rope_scaling, then top
/// level").
class ConfigReader {
 public:
  struct Scope {
    const Json* object;
    std::string prefix;  ///< "text_config.", put before a key in messages
  };
  ConfigReader(std::string origin, std::vector<Scope> scopes)
      : origin_(std::move(origin)), scopes_(std::move(scopes)) {}

  bool has(std::string_view key) const { return find(key).value != nullptr; }
  int64_t integer(std::string_view key, int64_t least, int64_t most);
  int64_t integer_or(std::string_view key, int64_t fallback, int64_t least, int64_t most);
  std::optional<int64_t> optional_integer(std::string_view key, int64_t least, int64_t most);
  /// Finite numbers in [least, most]; integers are accepted.
  double number(std::string_view key, double least, double most);
  double number_or(std::string_view key, double fallback, double least, double most);
  std::optional<double> optional_number(std::string_view key, double least, double most);
  bool boolean_or(std::string_view key, bool fallback);
  std::string string_or(std::string_view key, std::string fallback);
  /// One integer or a list of at most `limit`; empty when missing.
  std::vector<int64_t> integers(std::string_view key, size_t limit, int64_t least, int64_t most);
  /// A list of at most `limit` strings; empty when missing.
  std::vector<std::string> strings(std::string_view key, size_t limit);

  /// Remembers a mistake of the caller's own checks. `key` is shown with its scope's prefix.
  void reject(ErrorCode code, std::string_view key, std::string_view complaint, std::string hint = {});
  /// The value as in the file, shortened, for messages; "nothing" when missing.
  std::string shown(std::string_view key) const;
  const Status& status() const { return status_; }

 private:
  struct Found {
    const Json* value = nullptr;
    std::string name;  ///< key with its scope's prefix
  };
  Found find(std::string_view key) const;
  void expected(const Found& found, std::string_view what);
  std::optional<int64_t> checked_integer(const Json& value, int64_t least, int64_t most) const;

  std::string origin_;
  std::vector<Scope> scopes_;
  Status status_;
};

/// The value of `key`, or nullptr when it is missing or null.
const Json* member(const Json& object, const char* key);
/// A JSON value for a message: at most 60 bytes of its text.
std::string shortened(const Json& value);

}  // namespace hexlm
