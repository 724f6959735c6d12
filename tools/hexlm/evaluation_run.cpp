#include "hexlm/evaluation_run.hpp"

#include "hexlm/task_prompt.hpp"

namespace hexlm::tool {
namespace {

GenerateOptions fixed_options(const Arguments& arguments, const Model& model) {
  GenerateOptions options;
  options.sampling.temperature = static_cast<float>(arguments.number("temperature"));
  options.sampling.top_k = static_cast<int32_t>(arguments.integer("top-k"));
  options.sampling.top_p = static_cast<float>(arguments.number("top-p"));
  options.sampling.repetition_penalty = static_cast<float>(arguments.number("repetition-penalty"));
  options.sampling.seed = static_cast<uint64_t>(arguments.integer("seed"));
  options.max_new_tokens = arguments.integer("max-new-tokens");
  options.stop = arguments.texts("stop");
  options.eos_tokens = model.generation().eos_tokens;
  return options;
}

}  // namespace

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
  return evaluate(*opened.session, task, encode, fixed_options(arguments, *opened.model), progress);
}

}  // namespace hexlm::tool
