#include "hexlm/evaluation_run.hpp"

#include "hexlm/common.hpp"
#include "hexlm/task_prompt.hpp"

namespace hexlm::tool {

Result<Task> read_task_flags(const Arguments& arguments) {
  const std::string name = arguments.text("score");
  Scoring scoring = Scoring::automatic;
  for (const Scoring each : {Scoring::json, Scoring::text, Scoring::choices}) {
    if (name == to_string(each)) scoring = each;
  }
  HEXLM_ASSIGN(Task task, read_task(arguments.text("task"), scoring));
  const auto limit = static_cast<size_t>(arguments.integer("limit"));
  if (limit > 0 && task.rows.size() > limit) task.rows.resize(limit);
  return task;
}

Result<EvalResult> evaluate_task(const Arguments& arguments, const Opened& opened, const Task& task,
                                 const ProgressCallback& progress) {
  HEXLM_ASSIGN(const PromptFormat format, PromptFormat::create(arguments, *opened.model));
  Images images(arguments, opened.model);
  const auto encode = [&](const TaskRow& row, std::string_view answer) {
    return encode_task_row(*opened.model, format, images, row, answer);
  };
  return evaluate(*opened.session, task, encode, generate_options(arguments, *opened.model), progress);
}

}  // namespace hexlm::tool
