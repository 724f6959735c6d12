#define PCRE2_CODE_UNIT_WIDTH 8
#include <array>
#include <fmt/format.h>
#include <pcre2.h>
#include <utility>

#include "tokenizer/splitter.hpp"

namespace hexlm {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct RegexSplitter::Code {
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool compiled_to_machine_code = false;  // hardened systems deny executable memory
};

RegexSplitter::RegexSplitter(std::unique_ptr<Code> code) : code_(std::move(code)) {}
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;
RegexSplitter::~RegexSplitter() = default;

Result<RegexSplitter> RegexSplitter::compile(std::string_view pattern) {
  HEXLM_ASSIGN(const std::string translated, translate_regex(pattern));
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (!context)
    return fail(ErrorCode::runtime, "no memory to compile the pre-tokenizer's regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // what "." stops at in Oniguruma
  int error = 0;
  size_t offset = 0;
  auto code = std::make_unique<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                 context.get()));
  if (!code->code) {
    return fail(ErrorCode::unsupported, fmt::format("the pre-tokenizer's regular expression \"{}\" is not "
                                                    "understood: {}",
                                                    pattern, message_of(error)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return fail(ErrorCode::unsupported,
                fmt::format("the pre-tokenizer's regular expression \"{}\" may match empty text", pattern));
  }
  code->compiled_to_machine_code = pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return RegexSplitter(std::move(code));
}

size_t RegexSplitter::piece_end(std::string_view text, size_t begin) const {
  const pcre2_code* code = code_->code.get();
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(code, nullptr));
  if (!match) return begin;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->compiled_to_machine_code) {
    result = pcre2_jit_match(code, subject, text.size(), begin, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
  }
  // The interpreter keeps its backtracking points on the heap, so it goes on where the machine stack ends.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(code, subject, text.size(), begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(),
                         nullptr);
  }
  if (result == PCRE2_ERROR_NOMATCH) return text.size();
  if (result < 0) return begin;
  const size_t* bounds = pcre2_get_ovector_pointer(match.get());
  return bounds[0] > begin ? bounds[0] : bounds[1];
}

Result<std::unique_ptr<Splitter>> make_splitter(std::string_view pattern) {
  if (auto known = WordSplitter::for_pattern(pattern)) {
    return std::make_unique<WordSplitter>(*std::move(known));
  }
  HEXLM_ASSIGN(RegexSplitter splitter, RegexSplitter::compile(pattern));
  return std::make_unique<RegexSplitter>(std::move(splitter));
}

}  // namespace hexlm
