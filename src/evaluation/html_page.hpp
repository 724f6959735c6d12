#pragma once

#include <string_view>

namespace hexlm {

// The parts of an HTML report that are the same for every report.

extern const std::string_view report_style;
/// Draws the page from the data: helpers, plots, and one function for each kind of report.
extern const std::string_view report_script;
extern const std::string_view report_plots;

}  // namespace hexlm
