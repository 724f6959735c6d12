#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "evaluation/task_file.hpp"
#include "hexlm/prompt_format.hpp"
#include "runtime/model.hpp"

namespace hexlm::tool {

/// A task row's prompt with its system message and image as the model takes it, then `answer` if any. Errors:
/// unsupported for an image, which no model of this version takes; bad_input for text that can't be encoded.
Result<std::vector<int32_t>> encode_task_row(const Model& model, const PromptFormat& format,
                                             const TaskRow& row, std::string_view answer);

}  // namespace hexlm::tool
