#pragma once

#include "base/error.hpp"
#include "base/progress.hpp"
#include "evaluation/evaluate.hpp"
#include "hexlm/arguments.hpp"
#include "hexlm/common.hpp"

namespace hexlm::tool {

/// Answers the task's rows as the arguments of `eval` say: prompt format, fixed decoding.
Result<EvalResult> evaluate_task(const Arguments& arguments, const Opened& opened, const Task& task,
                                 const ProgressCallback& progress);

/// The task that --task, --score and --limit name.
Result<Task> read_task_flags(const Arguments& arguments);

}  // namespace hexlm::tool
