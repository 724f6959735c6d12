#pragma once

#include "base/error.hpp"
#include "hexlm/arguments.hpp"

namespace hexlm::tool {

// One function a verb, each in the file of its name. They print the result and return the exit code.

Result<int> run_export(Arguments& arguments);
Result<int> run_run(Arguments& arguments);
Result<int> run_logits(Arguments& arguments);
Result<int> run_tokenize(Arguments& arguments);
Result<int> run_perplexity(Arguments& arguments);
Result<int> run_inspect(Arguments& arguments);
Result<int> run_merge(Arguments& arguments);
Result<int> run_synth(Arguments& arguments);
Result<int> run_bench(Arguments& arguments);
Result<int> run_eval(Arguments& arguments);
Result<int> run_compare(Arguments& arguments);
Result<int> run_bisect(Arguments& arguments);
Result<int> run_version(Arguments& arguments);

}  // namespace hexlm::tool
