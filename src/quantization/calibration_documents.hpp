#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "quantization/calibration_text.hpp"

namespace hexlm {

/// The documents of one calibration file as text: paragraphs of a plain text, objects of a JSON array or of
/// JSON lines, chats as the template writes them. Errors: as load_calibration.
Result<std::vector<std::string>> read_documents(const std::string& path,
                                                const CalibrationTokenizer& tokenizer);

}  // namespace hexlm
