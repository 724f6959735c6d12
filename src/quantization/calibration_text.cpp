#include "quantization/calibration_text.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "quantization/calibration_documents.hpp"

namespace hexlm {
namespace {

constexpr std::array<std::string_view, 3> script_names = {"Chinese", "Latin", "other"};
constexpr std::array scripts = {DocumentScript::chinese, DocumentScript::latin, DocumentScript::other};
/// A calibration text that is shorter than this many samples says little about a model.
constexpr int64_t few_samples = 16;

/// Samples of one file in one script, in the order in which they will be drawn.
struct Stratum {
  CalibrationShare share;
  std::vector<std::vector<int32_t>> samples;
};

/// splitmix64: the same sequence on every machine, which std::shuffle does not promise.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void shuffle(std::vector<std::vector<int32_t>>& samples, uint64_t seed) {
  for (size_t i = samples.size(); i > 1; --i) std::swap(samples[i - 1], samples[next_random(seed) % i]);
}

/// Cuts a stratum's tokens into samples; a remainder counts only where there is nothing else.
void cut(const std::vector<int32_t>& ids, int64_t length, Stratum& stratum) {
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t first = 0; first + length <= total; first += length) {
    stratum.samples.emplace_back(ids.begin() + first, ids.begin() + first + length);
  }
  if (stratum.samples.empty() && total >= 2) stratum.samples.push_back(ids);
  stratum.share.available = static_cast<int64_t>(stratum.samples.size());
}

Status read_strata(const std::string& path, const CalibrationOptions& options,
                   const CalibrationTokenizer& tokenizer, std::vector<Stratum>& strata) {
  HEXLM_ASSIGN(const std::vector<std::string> documents, read_documents(path, tokenizer));
  std::array<std::vector<int32_t>, scripts.size()> ids;
  for (const std::string& document : documents) {
    auto encoded = tokenizer.tokenizer->encode(document);
    if (!encoded) {
      return fail(encoded.error().code, fmt::format("{}: {}", path, encoded.error().message),
                  "calibration text is UTF-8");
    }
    std::vector<int32_t>& all = ids[static_cast<size_t>(script_of(document))];
    all.insert(all.end(), encoded->begin(), encoded->end());
  }
  for (const DocumentScript script : scripts) {
    Stratum stratum;
    stratum.share.file = std::filesystem::path(path).filename().string();
    stratum.share.script = script;
    cut(ids[static_cast<size_t>(script)], options.tokens, stratum);
    if (stratum.samples.empty()) continue;
    shuffle(stratum.samples, options.seed);
    strata.push_back(std::move(stratum));
  }
  return {};
}

/// Deals `wanted` samples out to strata, one each in turn, as long as they have some.
int64_t deal(const std::vector<Stratum*>& strata, int64_t wanted) {
  int64_t dealt = 0;
  bool more = true;
  while (dealt < wanted && more) {
    more = false;
    for (Stratum* stratum : strata) {
      if (dealt == wanted || stratum->share.taken == stratum->share.available) continue;
      ++stratum->share.taken;
      ++dealt;
      more = true;
    }
  }
  return dealt;
}

std::vector<Stratum*> of_script(std::vector<Stratum>& strata, DocumentScript script) {
  std::vector<Stratum*> found;
  for (Stratum& stratum : strata) {
    if (stratum.share.script == script) found.push_back(&stratum);
  }
  return found;
}

/// Each script that occurs gets an equal part, Chinese first; what one lacks goes to whoever has more.
void deal_all(std::vector<Stratum>& strata, int64_t samples) {
  std::vector<DocumentScript> present;
  for (const DocumentScript script : scripts) {
    if (!of_script(strata, script).empty()) present.push_back(script);
  }
  int64_t left = samples;
  for (size_t i = 0; i < present.size(); ++i) {
    const auto parts = static_cast<int64_t>(present.size() - i);
    left -= deal(of_script(strata, present[i]), (left + parts - 1) / parts);
  }
  std::vector<Stratum*> all;
  all.reserve(strata.size());
  for (Stratum& stratum : strata) all.push_back(&stratum);
  deal(all, left);
}

void add_warnings(const CalibrationOptions& options, CalibrationSet& set) {
  std::array<int64_t, scripts.size()> taken{};
  for (const CalibrationShare& share : set.shares) taken[static_cast<size_t>(share.script)] += share.taken;
  const auto of = [&](DocumentScript script) { return taken[static_cast<size_t>(script)]; };
  if (of(DocumentScript::chinese) == 0) {
    set.warnings.emplace_back("no Chinese in the calibration text: Chinese answers may suffer");
  }
  if (of(DocumentScript::latin) == 0) {
    set.warnings.emplace_back(
        "no Latin text in the calibration text: answers in English and its kin may suffer");
  }
  if (of(DocumentScript::chinese) > 0 && of(DocumentScript::chinese) < of(DocumentScript::latin)) {
    set.warnings.push_back(fmt::format("only {} Chinese samples beside {} Latin ones: the files have no more",
                                       of(DocumentScript::chinese), of(DocumentScript::latin)));
  }
  const auto count = static_cast<int64_t>(set.sequences.size());
  if (count < std::min(few_samples, options.samples)) {
    set.warnings.push_back(
        fmt::format("only {} of {} calibration samples: the files have no more", count, options.samples));
  }
  if (set.shortest < options.tokens) {
    set.warnings.push_back(
        fmt::format("the shortest sample has {} tokens, {} asked for", set.shortest, options.tokens));
  }
}

}  // namespace

std::string_view to_string(DocumentScript script) { return script_names[static_cast<size_t>(script)]; }

DocumentScript script_of(std::string_view text) {
  int64_t han = 0;
  int64_t latin = 0;
  int64_t others = 0;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t point = lead < 0x80 ? lead : lead & (0xffU >> (length + 1));
    for (size_t k = 1; k < length && i + k < text.size(); ++k) {
      point = point << 6 | (static_cast<unsigned char>(text[i + k]) & 63U);
    }
    i += length;
    if ((point >= 0x3400 && point <= 0x9fff) || (point >= 0x20000 && point <= 0x3ffff)) {
      ++han;
    } else if ((point | 32U) - 'a' < 26 || (point >= 0xc0 && point <= 0x24f)) {
      ++latin;
    } else if (point > 0x24f && (point < 0x2000 || point > 0x206f) && (point < 0x3000 || point > 0x303f) &&
               (point < 0xff00 || point > 0xffef)) {
      ++others;
    }
  }
  if (10 * han >= 3 * (han + latin + others) && han > 0) return DocumentScript::chinese;
  return latin >= others && latin > 0 ? DocumentScript::latin : DocumentScript::other;
}

Result<CalibrationSet> load_calibration(const CalibrationOptions& options,
                                        const CalibrationTokenizer& tokenizer) {
  std::vector<Stratum> strata;
  for (const std::string& path : options.files) HEXLM_TRY(read_strata(path, options, tokenizer, strata));
  if (strata.empty()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: no calibration text in it", fmt::join(options.files, ", ")),
                "give files of a few hundred kilobytes in the languages that the model will be used in");
  }
  deal_all(strata, options.samples);
  CalibrationSet set;
  Hasher hasher;
  for (Stratum& stratum : strata) {
    set.shares.push_back(stratum.share);
    for (int64_t i = 0; i < stratum.share.taken; ++i) {
      set.sequences.push_back(std::move(stratum.samples[static_cast<size_t>(i)]));
    }
  }
  for (const auto& sequence : set.sequences) {
    const auto length = static_cast<int64_t>(sequence.size());
    set.shortest = set.shortest == 0 ? length : std::min(set.shortest, length);
    set.longest = std::max(set.longest, length);
    set.tokens += length;
    hasher.update(std::as_bytes(std::span(sequence)));
  }
  set.hash = hasher.digest();
  add_warnings(options, set);
  return set;
}

}  // namespace hexlm
