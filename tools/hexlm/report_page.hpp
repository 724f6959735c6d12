#pragma once

#include <string>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "hexlm/arguments.hpp"

namespace hexlm::tool {

/// Writes the HTML page that --report asks for; does nothing without the flag. `kind` is the verb, `result`
/// what it prints as JSON; images of failing rows are taken into the page, up to 16 MB of them.
Status write_report_page(const Arguments& arguments, const std::string& kind, const std::string& title,
                         const Json& result);

}  // namespace hexlm::tool
