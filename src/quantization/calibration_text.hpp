#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "tokenizer/chat_template.hpp"
#include "tokenizer/tokenizer.hpp"
#include "vision/preprocess.hpp"

namespace hexlm {

struct CalibrationOptions {
  std::vector<std::string> files;
  int64_t samples = 128;
  int64_t tokens = 512;  ///< of a sample
  uint64_t seed = 0;
};

/// What turns text into tokens; `chat_template` may be null when no file holds chats.
struct CalibrationTokenizer {
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;
  Json special_tokens;  ///< for the template
  /// For samples with images; null for models that see none.
  const PreprocessorConfig* preprocessor = nullptr;
  int32_t image_token = -1;
};

/// The writing that most of a sample's letters are in, or that it shows images.
enum class DocumentScript : uint8_t { chinese, latin, other, images };
std::string_view to_string(DocumentScript script);
/// Chinese when at least three in ten letters are Han characters (each carries several letters' meaning).
DocumentScript script_of(std::string_view text);

/// Samples that were taken from one file in one script.
struct CalibrationShare {
  std::string file;
  DocumentScript script = DocumentScript::other;
  int64_t available = 0;  ///< samples of full length
  int64_t taken = 0;
};

struct CalibrationSet {
  std::vector<std::vector<int32_t>> sequences;
  /// What the sequences show, each image once; `shown` says of each sequence which ones, in order (it ends
  /// with the last sequence that shows any).
  std::vector<PreparedImage> images;
  std::vector<std::vector<size_t>> shown;
  std::vector<CalibrationShare> shares;
  std::vector<std::string> warnings;  ///< what the text does not cover
  int64_t tokens = 0;
  int64_t shortest = 0;
  int64_t longest = 0;
  uint64_t hash = 0;  ///< XXH3-64 of all token ids, and of the images

  /// Of a set that saved statistics stand for: what the manifest says about it; null for one with samples.
  Json saved_record;

  bool has_images() const { return !images.empty() || saved_record.contains("images"); }
  std::vector<size_t> images_of(size_t sequence) const {
    return sequence < shown.size() ? shown[sequence] : std::vector<size_t>();
  }
  /// The sequences without images.
  std::vector<std::vector<int32_t>> texts() const;
};

/// Reads calibration files: plain text; JSON arrays or JSON lines of {"text"}, {"instruction", "input",
/// "output"} or {"messages"}. The last two go through the chat template. Messages may show images: parts
/// {"type": "image", "image": FILE}, or FILEs in "images" for the parts without one, relative to the file
/// that names them; such a conversation is a sample of its own. Documents of one file and script are joined
/// and cut into samples; samples are drawn without replacement, evenly over scripts (where Chinese and Latin
/// text both occur, Chinese gets no less than Latin) and then over files. The same files, settings and seed
/// give the same samples. Errors: bad_input naming file and line (no text at all, an object of another form,
/// invalid UTF-8, a chat without a template, images that are missing, broken or too few).
Result<CalibrationSet> load_calibration(const CalibrationOptions& options,
                                        const CalibrationTokenizer& tokenizer);

}  // namespace hexlm
