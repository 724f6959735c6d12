#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "quantization/calibration_text.hpp"

namespace hexlm {

/// A piece of calibration text, with one image token of the model for each of its image files, in order.
struct CalibrationDocument {
  std::string text;
  std::vector<std::string> images;
};

/// The documents of one calibration file: paragraphs of a plain text, objects of a JSON array or of
/// JSON lines, chats as the template writes them. Errors: as load_calibration.
Result<std::vector<CalibrationDocument>> read_documents(const std::string& path,
                                                        const CalibrationTokenizer& tokenizer);

}  // namespace hexlm
