#pragma once

#include <string_view>

#include "base/error.hpp"
#include "evaluation/task_file.hpp"
#include "hexlm/images.hpp"
#include "hexlm/prompt_format.hpp"
#include "runtime/model.hpp"
#include "runtime/prompt.hpp"

namespace hexlm::tool {

/// A task row's prompt with its system message and image as the model takes it, then `answer` if any. Errors:
/// unsupported for an image with a model that takes none; bad_input for text or images that can't be encoded.
Result<Prompt> encode_task_row(const Model& model, const PromptFormat& format, Images& images,
                               const TaskRow& row, std::string_view answer);

}  // namespace hexlm::tool
