#include "quantization/calibration_text.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <map>

#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "quantization/calibration_documents.hpp"
#include "vision/image.hpp"
#include "vision/positions.hpp"

namespace hexlm {
namespace {

constexpr std::array<std::string_view, 4> script_names = {"Chinese", "Latin", "other", "illustrated"};
constexpr std::array scripts = {DocumentScript::chinese, DocumentScript::latin, DocumentScript::other,
                                DocumentScript::images};
/// A calibration text that is shorter than this many samples says little about a model.
constexpr int64_t few_samples = 16;

struct Sample {
  std::vector<int32_t> ids;
  std::vector<std::string> images;
};

/// Samples of one file in one script, in the order in which they will be drawn.
struct Stratum {
  CalibrationShare share;
  std::vector<Sample> samples;
};

/// splitmix64: the same sequence on every machine, which std::shuffle does not promise.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void shuffle(std::vector<Sample>& samples, uint64_t seed) {
  for (size_t i = samples.size(); i > 1; --i) std::swap(samples[i - 1], samples[next_random(seed) % i]);
}

/// Cuts a stratum's tokens into samples; a remainder counts only where there is nothing else.
void cut(const std::vector<int32_t>& ids, int64_t length, Stratum& stratum) {
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t first = 0; first + length <= total; first += length) {
    stratum.samples.push_back({{ids.begin() + first, ids.begin() + first + length}, {}});
  }
  if (stratum.samples.empty() && total >= 2) stratum.samples.push_back({ids, {}});
}

Status read_strata(const std::string& path, const CalibrationOptions& options,
                   const CalibrationTokenizer& tokenizer, std::vector<Stratum>& strata) {
  HEXLM_ASSIGN(const std::vector<CalibrationDocument> documents, read_documents(path, tokenizer));
  std::array<std::vector<int32_t>, scripts.size()> ids;
  std::vector<Sample> illustrated;
  for (const CalibrationDocument& document : documents) {
    auto encoded = tokenizer.tokenizer->encode(document.text);
    if (!encoded) {
      return fail(encoded.error().code, fmt::format("{}: {}", path, encoded.error().message),
                  "calibration text is UTF-8");
    }
    if (!document.images.empty()) {
      // A conversation is not cut: its image tokens belong together.
      illustrated.push_back({*std::move(encoded), document.images});
      continue;
    }
    std::vector<int32_t>& all = ids[static_cast<size_t>(script_of(document.text))];
    all.insert(all.end(), encoded->begin(), encoded->end());
  }
  for (const DocumentScript script : scripts) {
    Stratum stratum;
    stratum.share.file = std::filesystem::path(path).filename().string();
    stratum.share.script = script;
    if (script == DocumentScript::images) {
      stratum.samples.swap(illustrated);
    } else {
      cut(ids[static_cast<size_t>(script)], options.tokens, stratum);
    }
    stratum.share.available = static_cast<int64_t>(stratum.samples.size());
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

/// Puts samples into a set, reading each image once.
class SetBuilder {
 public:
  SetBuilder(const CalibrationTokenizer& tokenizer, CalibrationSet& set) : tokenizer_(tokenizer), set_(set) {}

  Status add(Sample sample) {
    if (!sample.images.empty()) {
      set_.shown.resize(set_.sequences.size() + 1);
      std::vector<ImageGrid> grids;
      for (const std::string& file : sample.images) {
        HEXLM_ASSIGN(const size_t image, find_image(file));
        set_.shown.back().push_back(image);
        grids.push_back(set_.images[image].grid);
      }
      auto expanded = expand_image_placeholders(sample.ids, tokenizer_.image_token, grids,
                                                tokenizer_.preprocessor->merge_size);
      if (!expanded) {
        return fail(expanded.error().code,
                    fmt::format("the conversation about {}: {}", sample.images[0], expanded.error().message),
                    "the chat template must write one image token for each image");
      }
      sample.ids = *std::move(expanded);
    }
    hasher_.update(std::as_bytes(std::span(sample.ids)));
    set_.sequences.push_back(std::move(sample.ids));
    return {};
  }

  uint64_t hash() const { return hasher_.digest(); }

 private:
  Result<size_t> find_image(const std::string& file) {
    const auto known = known_.find(file);
    if (known != known_.end()) return known->second;
    if (tokenizer_.preprocessor == nullptr) {
      return fail(ErrorCode::unsupported, fmt::format("{}: the model sees no images to calibrate with", file),
                  "leave conversations with images out of its calibration files");
    }
    HEXLM_ASSIGN(const MappedFile mapped, MappedFile::open(file));
    HEXLM_ASSIGN(const Image image, decode_image(mapped.bytes(), file));
    HEXLM_ASSIGN(PreparedImage prepared, preprocess_image(image, *tokenizer_.preprocessor));
    hasher_.update(std::as_bytes(std::span(prepared.pixel_values)));
    set_.images.push_back(std::move(prepared));
    return known_[file] = set_.images.size() - 1;
  }

  const CalibrationTokenizer& tokenizer_;
  CalibrationSet& set_;
  std::map<std::string, size_t> known_;
  Hasher hasher_;
};

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
  if (set.shortest < options.tokens && set.images.empty()) {
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
  SetBuilder builder(tokenizer, set);
  for (Stratum& stratum : strata) {
    set.shares.push_back(stratum.share);
    for (int64_t i = 0; i < stratum.share.taken; ++i) {
      HEXLM_TRY(builder.add(std::move(stratum.samples[static_cast<size_t>(i)])));
    }
  }
  for (const auto& sequence : set.sequences) {
    const auto length = static_cast<int64_t>(sequence.size());
    set.shortest = set.shortest == 0 ? length : std::min(set.shortest, length);
    set.longest = std::max(set.longest, length);
    set.tokens += length;
  }
  set.hash = builder.hash();
  add_warnings(options, set);
  return set;
}

std::vector<std::vector<int32_t>> CalibrationSet::texts() const {
  std::vector<std::vector<int32_t>> found;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (images_of(i).empty()) found.push_back(sequences[i]);
  }
  return found;
}

}  // namespace hexlm
