#include <chrono>
#include <cstdint>

#include "peaks/peaks.hpp"

namespace hexlm::bench {

namespace {

constexpr int64_t rounds = 20000;
constexpr int repetitions = 200;  // of some 30 µs each; the best meets an undisturbed moment
constexpr int sums = 12;          // independent ones hide the instructions' latency

template <class Loop>
double best_rate(double macs_per_round, Loop&& loop) {
  double best = 0;
  for (int i = 0; i < repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    loop();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const double rate = macs_per_round * rounds / seconds.count();
    best = rate > best ? rate : best;
  }
  return best;
}

// Whole loops in assembly: no compiler then moves, merges or spills anything. Registers 0 … 11 are sums, 12
// and 13 operands; their contents don't matter (integers, or the zeros that the first lines make).
#define HEXLM_TWELVE(instruction)                                                                          \
  instruction(0) instruction(1) instruction(2) instruction(3) instruction(4) instruction(5) instruction(6) \
      instruction(7) instruction(8) instruction(9) instruction(10) instruction(11)
#define HEXLM_LOOP(clear, step, registers) \
  int64_t count = rounds;                  \
  asm volatile(HEXLM_TWELVE(clear) clear(12) clear(13) "1:\n" HEXLM_TWELVE(step) "decq %0\njnz 1b\n"           \
               "vzeroupper\n"                                                                                 \
               : "+r"(count)                                                                                  \
               :                                                                                              \
               : registers "cc")
#define HEXLM_CLOBBERS                                                                                       \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
      "xmm13", "xmm14",

#define HEXLM_CLEAR(i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n"
#define HEXLM_DPBUSD(i) "vpdpbusd %%zmm12, %%zmm13, %%zmm" #i "\n"
#define HEXLM_FMA512(i) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #i "\n"
#define HEXLM_FMA256(i) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #i "\n"
/// What 8-bit products cost at best without a dot-product instruction: products in 16 bits and their sum.
#define HEXLM_MADDUBS(i)                   \
  "vpmaddubsw %%ymm12, %%ymm13, %%ymm14\n" \
  "vpaddw %%ymm14, %%ymm" #i ", %%ymm" #i "\n"

void dot_512() { HEXLM_LOOP(HEXLM_CLEAR, HEXLM_DPBUSD, HEXLM_CLOBBERS); }
void fma_512() { HEXLM_LOOP(HEXLM_CLEAR, HEXLM_FMA512, HEXLM_CLOBBERS); }
void fma_256() { HEXLM_LOOP(HEXLM_CLEAR, HEXLM_FMA256, HEXLM_CLOBBERS); }
void dot_256() { HEXLM_LOOP(HEXLM_CLEAR, HEXLM_MADDUBS, HEXLM_CLOBBERS); }

}  // namespace

Peaks measure_peaks(std::string_view kernel_set) {
  if (kernel_set == "avx512_vnni") return {best_rate(64.0 * sums, dot_512), best_rate(16.0 * sums, fma_512)};
  if (kernel_set == "avx2") return {best_rate(32.0 * sums, dot_256), best_rate(8.0 * sums, fma_256)};
  return {};
}

}  // namespace hexlm::bench
