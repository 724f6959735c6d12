#include "tokenizer/tokenizer.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <mutex>
#include <utility>

#include "tokenizer/added_tokens.hpp"
#include "tokenizer/nfc.hpp"
#include "tokenizer/splitter.hpp"
#include "tokenizer/tokenizer_json.hpp"
#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

/// Positions within a word are 32-bit.
constexpr size_t max_text = size_t{1} << 31;

/// Working memory of one call of encode.
struct EncodeScratch {
  BytePairScratch words;
  std::string normalized;
};

/// Working memory is kept between calls, because it remembers words; concurrent calls take one each.
class ScratchPool {
 public:
  std::unique_ptr<EncodeScratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<EncodeScratch>();
  }
  void give_back(std::unique_ptr<EncodeScratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeScratch>> free_;
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerDefinition from) : definition(std::move(from)) {}

  Status build();
  Status encode_segments(std::string_view text, bool parse_added, EncodeScratch& scratch,
                         std::vector<int32_t>& out) const;
  Status encode_normalized(std::string_view text, bool parse_added, EncodeScratch& scratch,
                           std::vector<int32_t>& out) const;
  Status encode_pieces(std::string_view text, size_t step, EncodeScratch& scratch,
                       std::vector<int32_t>& out) const;
  bool is_special(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < special.size() && special[static_cast<size_t>(id)];
  }
  const Vocabulary& vocabulary() const { return definition.model.vocabulary(); }

  TokenizerDefinition definition;
  AddedTokenMatcher raw_tokens;         // sought in the text as given
  AddedTokenMatcher normalized_tokens;  // sought in the normalized text
  std::vector<std::unique_ptr<Splitter>> splitters;
  std::vector<bool> special;
  mutable ScratchPool pool;
};

Status Tokenizer::Impl::build() {
  special.resize(static_cast<size_t>(vocabulary().size()));
  for (const AddedToken& token : definition.added_tokens) {
    if (token.special) special[static_cast<size_t>(token.id)] = true;
    std::string storage;
    if (token.normalized) {
      normalized_tokens.add(token, definition.nfc ? compose_nfc(token.content, storage) : token.content);
    } else {
      raw_tokens.add(token, token.content);
    }
  }
  for (const std::string& pattern : definition.patterns) {
    HEXLM_ASSIGN(auto splitter, make_splitter(pattern));
    splitters.push_back(std::move(splitter));
  }
  return {};
}

/// Calls `encode_text` for what lies between the added tokens of `text`, and appends their ids.
template <class EncodeText>
static Status split_added(const AddedTokenMatcher& matcher, std::string_view text, std::vector<int32_t>& out,
                          EncodeText encode_text) {
  AddedTokenMatcher::Scan scan(matcher, text);
  size_t done = 0;
  while (const auto match = scan.next()) {
    if (done < match->begin) HEXLM_TRY(encode_text(text.substr(done, match->begin - done)));
    out.push_back(match->id);
    done = match->end;
  }
  if (done < text.size()) HEXLM_TRY(encode_text(text.substr(done)));
  return {};
}

Status Tokenizer::Impl::encode_segments(std::string_view text, bool parse_added, EncodeScratch& scratch,
                                        std::vector<int32_t>& out) const {
  const auto encode_text = [&](std::string_view segment) -> Status {
    if (definition.nfc) segment = compose_nfc(segment, scratch.normalized);
    return encode_normalized(segment, parse_added, scratch, out);
  };
  if (!parse_added) return text.empty() ? Status{} : encode_text(text);
  return split_added(raw_tokens, text, out, encode_text);
}

Status Tokenizer::Impl::encode_normalized(std::string_view text, bool parse_added, EncodeScratch& scratch,
                                          std::vector<int32_t>& out) const {
  const auto encode_text = [&](std::string_view segment) { return encode_pieces(segment, 0, scratch, out); };
  return parse_added ? split_added(normalized_tokens, text, out, encode_text) : encode_text(text);
}

Status Tokenizer::Impl::encode_pieces(std::string_view text, size_t step, EncodeScratch& scratch,
                                      std::vector<int32_t>& out) const {
  if (step == splitters.size()) {
    definition.model.encode(text, scratch.words, out);
    return {};
  }
  const Splitter& splitter = *splitters[step];
  const bool last_step = step + 1 == splitters.size();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = splitter.piece_end(text, begin);
    if (end == begin) {
      return fail(
          ErrorCode::limit,
          fmt::format("the pre-tokenizer's regular expression \"{}\" takes too much memory or time on "
                      "this text",
                      definition.patterns[step]));
    }
    const std::string_view piece = text.substr(begin, end - begin);
    if (last_step) {
      definition.model.encode(piece, scratch.words, out);
    } else {
      HEXLM_TRY(encode_pieces(piece, step + 1, scratch, out));
    }
    begin = end;
  }
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file)
    return fail(ErrorCode::bad_input, fmt::format("{}: cannot be opened, expected a tokenizer.json", path));
  const std::streamoff size = file.tellg();
  std::string json(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  file.seekg(0);
  if (!file.read(json.data(), static_cast<std::streamsize>(json.size()))) {
    return fail(ErrorCode::bad_input, fmt::format("{}: cannot be read", path));
  }
  return parse(json, path);
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& origin) {
  const auto build = [&]() -> Result<Tokenizer> {
    HEXLM_ASSIGN(TokenizerDefinition definition, read_tokenizer_json(json));
    auto impl = std::make_unique<Impl>(std::move(definition));
    HEXLM_TRY(impl->build());
    return Tokenizer(std::move(impl));
  };
  auto tokenizer = build();
  if (tokenizer) return tokenizer;
  const Error& error = tokenizer.error();
  return fail(error.code, fmt::format("{}: {}", origin, as_one_line(error.message)), error.hint);
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool add_special_tokens,
                                               bool parse_added) const {
  if (text.size() > max_text) {
    return fail(ErrorCode::limit, fmt::format("the text has {} bytes, at most {} are encoded at a time",
                                              text.size(), max_text));
  }
  if (const auto offset = find_invalid_utf8(text)) {
    return fail(ErrorCode::bad_input, fmt::format("the text is not valid UTF-8 at byte {}", *offset));
  }
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 16);  // English has about 4.5 bytes a token, Chinese 4
  if (add_special_tokens) out = impl_->definition.prefix;
  auto scratch = impl_->pool.take();
  const Status encoded = impl_->encode_segments(text, parse_added, *scratch, out);
  impl_->pool.give_back(std::move(scratch));
  HEXLM_TRY(encoded);
  if (add_special_tokens) {
    out.insert(out.end(), impl_->definition.suffix.begin(), impl_->definition.suffix.end());
  }
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!skip_special_tokens || !impl_->is_special(id)) bytes.append(token_bytes(id));
  }
  std::string text;
  append_lossy_utf8(bytes, text);
  return text;
}

std::string_view Tokenizer::token_bytes(int32_t id) const { return impl_->vocabulary().bytes(id); }

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  if (find_invalid_utf8(token)) return std::nullopt;
  std::string buffer;
  const int32_t id = impl_->vocabulary().find_spelling(token, buffer);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

bool Tokenizer::is_special(int32_t id) const { return impl_->is_special(id); }

int32_t Tokenizer::size() const { return impl_->vocabulary().size(); }

}  // namespace hexlm
