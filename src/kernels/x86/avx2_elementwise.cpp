#include "kernels/generic/elementwise.hpp"
#include "kernels/x86/avx2_vector.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx2 {

void rms_norm(const float* x, int64_t x_stride, const float* weight, float* y, int64_t y_stride, int64_t rows,
              int64_t dim, float epsilon, float weight_offset) {
  rms_norm_rows<Vector>(x, x_stride, weight, y, y_stride, rows, dim, epsilon, weight_offset);
}

void gated_rms_norm(const float* x, const float* gate, const float* weight, float* y, int64_t rows,
                    int64_t dim, float epsilon) {
  gated_rms_norm_rows<Vector>(x, gate, weight, y, rows, dim, epsilon);
}

void rope(float* x, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cosine,
          const float* sine) {
  rope_heads<Vector>(x, heads, head_dim, rotary_dim, cosine, sine);
}

void add(const float* a, const float* b, float* y, int64_t count) {
  combine<Vector>(a, b, y, count, [](Vector left, Vector right) { return left + right; });
}

void silu_multiply(const float* gate, const float* up, float* y, int64_t count) {
  combine<Vector>(gate, up, y, count, [](Vector gates, Vector ups) { return silu(gates) * ups; });
}

void sigmoid_multiply(const float* x, const float* gate, float* y, int64_t count) {
  combine<Vector>(x, gate, y, count, [](Vector values, Vector gates) {
    return values / (Vector(1.0F) + exponential(Vector() - gates));
  });
}

void store_half(const float* x, uint16_t* y, int64_t count) { store_halves<Vector>(x, y, count); }

void layer_norm(const float* x, const float* weight, const float* bias, float* y, int64_t rows, int64_t dim,
                float epsilon) {
  layer_norm_rows<Vector>(x, weight, bias, y, rows, dim, epsilon);
}

void gelu_tanh(const float* x, float* y, int64_t count) {
  map<Vector>(x, y, count, [](Vector values) { return gelu_by_tanh(values); });
}

void gelu_erf(const float* x, float* y, int64_t count) {
  map<Vector>(x, y, count, [](Vector values) { return gelu_by_erf(values); });
}

void gelu_quick(const float* x, float* y, int64_t count) {
  map<Vector>(x, y, count, [](Vector values) { return quick_gelu(values); });
}

}  // namespace hexlm::avx2
