#pragma once

#include <string>
#include <string_view>

namespace hexlm {

/// Normalization Form C (UAX #15) of well-formed UTF-8. Returns `text` itself when it is in that form
/// already, else a view of `storage`. The quick check costs about a nanosecond a character; only the
/// neighbourhood of characters that fail it is composed, in time linear (n log n in a run of combining
/// marks). Unicode 15.0 (utf8proc 2.8). Normalization of a character never changes once it is assigned, but
/// Hugging Face tokenizers normalize by Unicode 9.0: they leave combining marks younger than that where they
/// stand, so ids can differ on text that has such marks (of rare scripts) out of canonical order.
std::string_view compose_nfc(std::string_view text, std::string& storage);

}  // namespace hexlm
