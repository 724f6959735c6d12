#pragma once

#include "kernels/generic/attention.hpp"
#include "kernels/generic/delta_net.hpp"
#include "kernels/generic/elementwise.hpp"
#include "kernels/generic/float_linear.hpp"
#include "kernels/reference/reference.hpp"

/// The float kernels of a set, all made of its vector type. Internal and static, see unroll.hpp.
namespace hexlm {
namespace {

template <class Vector>
void convolution_kernel(const float* x, int64_t tokens, int64_t channels, const float* weight, int64_t taps,
                        float* history, float* y, int64_t channel_begin, int64_t channel_end) {
  // Every published model has four taps.
  if (taps != 4) {
    return reference::causal_convolution(x, tokens, channels, weight, taps, history, y, channel_begin,
                                         channel_end);
  }
  convolve_four_taps<Vector>(x, tokens, channels, weight, history, y, channel_begin, channel_end);
}

/// A set of the entries that work with floats. For a `constinit` object: a table that code had to fill would
/// run that code, compiled for the set's instructions, on processors that lack them.
template <class Vector>
constexpr KernelSet make_float_kernels() {
  KernelSet set;
  set.float_linear = [](const FloatLinearArguments& arguments) { FloatLinear<Vector>(arguments).run(); };
  set.dequantize_row = [](const MatrixView& matrix, int64_t row, float* out) {
    Dequantizer<Vector>(matrix).run(row, 0, matrix.columns, out);
  };
  set.rms_norm = rms_norm_rows<Vector>;
  set.gated_rms_norm = gated_rms_norm_rows<Vector>;
  set.layer_norm = layer_norm_rows<Vector>;
  set.gelu_tanh = [](const float* x, float* y, int64_t count) {
    map<Vector>(x, y, count, [](Vector values) { return gelu_by_tanh(values); });
  };
  set.gelu_erf = [](const float* x, float* y, int64_t count) {
    map<Vector>(x, y, count, [](Vector values) { return gelu_by_erf(values); });
  };
  set.gelu_quick = [](const float* x, float* y, int64_t count) {
    map<Vector>(x, y, count, [](Vector values) { return quick_gelu(values); });
  };
  set.rope = rope_heads<Vector>;
  set.add = [](const float* a, const float* b, float* y, int64_t count) {
    combine<Vector>(a, b, y, count, [](Vector left, Vector right) { return left + right; });
  };
  set.silu_multiply = [](const float* gate, const float* up, float* y, int64_t count) {
    combine<Vector>(gate, up, y, count, [](Vector gates, Vector ups) { return silu(gates) * ups; });
  };
  set.sigmoid_multiply = [](const float* x, const float* gate, float* y, int64_t count) {
    combine<Vector>(x, gate, y, count, [](Vector values, Vector gates) {
      return values / (Vector(1.0F) + exponential(Vector() - gates));
    });
  };
  set.store_half = store_halves<Vector>;
  set.store_int8 = store_bytes<Vector>;
  set.attention = [](const AttentionArguments& arguments) {
    switch (arguments.cache) {
      case CacheType::f32:
        return attend<Vector, CacheType::f32>(arguments);
      case CacheType::f16:
        return attend<Vector, CacheType::f16>(arguments);
      case CacheType::int8:
        return attend<Vector, CacheType::int8>(arguments);
    }
  };
  set.causal_convolution = convolution_kernel<Vector>;
  set.delta_net = delta_net_head<Vector>;
  return set;
}

}  // namespace
}  // namespace hexlm
