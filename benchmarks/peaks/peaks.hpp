#pragma once

#include <string_view>

namespace hexlm::bench {

/// Most multiply-accumulates a second of one thread with a kernel set's instructions, operands in registers;
/// 0 where no loop exists for the set.
struct Peaks {
  double int8_macs = 0;
  double float_macs = 0;
};

Peaks measure_peaks(std::string_view kernel_set);

}  // namespace hexlm::bench
