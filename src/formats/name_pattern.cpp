#include "formats/name_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

namespace hexlm {
namespace {

/// Names have a few hundred bytes at most; published patterns a few dozen.
constexpr size_t longest_expression = 1000;
/// Steps of one match: far more than any sensible pattern takes, some milliseconds.
constexpr uint32_t match_limit = 100000;

struct FreePatternMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreePatternContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct NamePattern::Code {
  std::string expression;
  std::string origin;
  std::shared_ptr<pcre2_code> code;
};

Result<NamePattern> NamePattern::compile(std::string_view expression, const std::string& origin,
                                         uint32_t options) {
  const auto bad = [&](const std::string& reason) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: the pattern '{}' {}", origin, expression.substr(0, 60), reason));
  };
  if (expression.size() > longest_expression) {
    return bad(fmt::format("has {} bytes, at most {} are read", expression.size(), longest_expression));
  }
  auto code = std::make_shared<Code>();
  code->expression = expression;
  code->origin = origin;
  int error = 0;
  size_t at = 0;
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                 options | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr),
                   pcre2_code_free);
  if (code->code == nullptr) return bad(fmt::format("is no regular expression from byte {} on", at));
  NamePattern pattern;
  pattern.code_ = std::move(code);
  return pattern;
}

Result<NamePattern> NamePattern::whole(std::string_view expression, const std::string& origin) {
  return compile(expression, origin, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
}

Result<NamePattern> NamePattern::beginning(std::string_view expression, const std::string& origin) {
  return compile(expression, origin, PCRE2_ANCHORED);
}

Result<bool> NamePattern::matches(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, FreePatternMatch> match(
      pcre2_match_data_create_from_pattern(code_->code.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, FreePatternContext> context(pcre2_match_context_create(nullptr));
  if (match == nullptr || context == nullptr) return fail(ErrorCode::limit, "no memory to match a pattern");
  pcre2_set_match_limit(context.get(), match_limit);
  const int result = pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0,
                                 0, match.get(), context.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  return fail(ErrorCode::limit, fmt::format("{}: matching '{}' with the pattern '{}' takes too long",
                                            code_->origin, name, code_->expression.substr(0, 60)));
}

}  // namespace hexlm
