#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "hexlm/arguments.hpp"

namespace hexlm::tool {

/// One combination of the values that --backend, --threads and --precision list.
struct GridSetting {
  std::string backend;
  int threads = 1;
  std::string threads_text;  ///< as it was given: a number or auto
  std::string precision;
};

/// All combinations, backends outermost. Errors: usage, naming a value that is none.
Result<std::vector<GridSetting>> read_grid(const Arguments& arguments);
/// The arguments with the setting's values.
Arguments with_setting(const Arguments& arguments, const GridSetting& setting);

}  // namespace hexlm::tool
