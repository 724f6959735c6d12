#pragma once

#include <type_traits>
#include <utility>

/// Internal to the vector kernels. Everything here is static: the files that include it are compiled for
/// different instruction sets, and the linker must not share their copies.
namespace hexlm {

/// Calls f(0) … f(N−1) with compile-time indices, so that arrays of vectors indexed by them live in registers
/// at every optimisation level above -O0 (g++ 12 spills such arrays when a loop pragma does the unrolling).
template <int N, class Function>
[[gnu::always_inline]] static inline void unroll(Function&& function) {
  [&]<int... index>(std::integer_sequence<int, index...>) __attribute__((always_inline)) {
    (function(std::integral_constant<int, index>{}), ...);
  }(std::make_integer_sequence<int, N>{});
}

}  // namespace hexlm
