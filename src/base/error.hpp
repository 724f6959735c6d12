#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace hexlm {

/// What kind of failure an `Error` is. The numeric value is the program's exit code (docs/cli.md).
enum class ErrorCode {
  runtime = 1,
  usage = 2,
  bad_input = 3,
  unsupported = 4,
  limit = 5,
  device = 6,
  verification = 7,
  interrupted = 130,
};

/// The stable name of a code, as printed in JSON (`bad_input`, `unsupported`, …).
std::string_view to_string(ErrorCode code);

/// A failure as a value: `message` is one line that names what failed, what was expected and what came;
/// `hint` says what the user can do, and may be empty.
struct Error {
  ErrorCode code = ErrorCode::runtime;
  std::string message;
  std::string hint;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

/// `return fail(ErrorCode::bad_input, fmt::format(…), "hint");` from any function that returns a Result.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string hint = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(hint)});
}

}  // namespace hexlm

#define HEXLM_CONCATENATE_(a, b) a##b
#define HEXLM_CONCATENATE(a, b) HEXLM_CONCATENATE_(a, b)

/// Returns the error of `expression` (a Status or Result) from the enclosing function, if it holds one.
#define HEXLM_TRY(expression)                                                   \
  do {                                                                          \
    if (auto hexlm_status = (expression); !hexlm_status) {                      \
      return ::tl::unexpected<::hexlm::Error>(std::move(hexlm_status).error()); \
    }                                                                           \
  } while (false)

/// `HEXLM_ASSIGN(auto value, function());` binds the value of a Result or returns its error.
#define HEXLM_ASSIGN(declaration, expression) \
  HEXLM_ASSIGN_(HEXLM_CONCATENATE(hexlm_result_, __LINE__), declaration, expression)
// The arguments are a declaration and a name: neither can stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define HEXLM_ASSIGN_(result, declaration, expression)                             \
  auto result = (expression);                                                      \
  if (!result) return ::tl::unexpected<::hexlm::Error>(std::move(result).error()); \
  declaration = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
