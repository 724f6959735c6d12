#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "hexlm/flags.hpp"

namespace hexlm::tool {

// Flags that several verbs share.

/// What every verb that runs a model understands.
const std::vector<Flag>& model_flag_group();
/// --threads
Flag make_threads_flag();
/// --format with these choices.
Flag make_format_flag(std::string_view choices);
/// --chat-template
Flag make_chat_template_flag();
/// --image-max-pixels
Flag make_image_max_pixels_flag();
/// --report: an HTML page beside the result.
Flag make_report_flag();
std::vector<Flag> join_flags(std::initializer_list<std::vector<Flag>> groups);

// Verbs of verification, described in verification_flags.cpp.
Verb eval_verb();
Verb compare_verb();
Verb bisect_verb();

}  // namespace hexlm::tool
