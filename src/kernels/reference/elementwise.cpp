#include <cmath>
#include <numbers>

#include "base/half.hpp"
#include "kernels/activation_blocks.hpp"
#include "kernels/reference/reference.hpp"

namespace hexlm::reference {

namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double inverse_root_mean_square(const float* x, int64_t dim, float epsilon) {
  double sum = 0;
  for (int64_t i = 0; i < dim; ++i) sum += static_cast<double>(x[i]) * x[i];
  return 1.0 / std::sqrt(sum / static_cast<double>(dim) + epsilon);
}

}  // namespace

void rms_norm(const float* x, int64_t x_stride, const float* weight, float* y, int64_t y_stride, int64_t rows,
              int64_t dim, float epsilon, float weight_offset) {
  for (int64_t row = 0; row < rows; ++row) {
    const double factor = inverse_root_mean_square(x + row * x_stride, dim, epsilon);
    for (int64_t i = 0; i < dim; ++i) {
      const double scale = static_cast<double>(weight[i]) + weight_offset;
      y[row * y_stride + i] = static_cast<float>(x[row * x_stride + i] * factor * scale);
    }
  }
}

void gated_rms_norm(const float* x, const float* gate, const float* weight, float* y, int64_t rows,
                    int64_t dim, float epsilon) {
  for (int64_t row = 0; row < rows; ++row) {
    const double factor = inverse_root_mean_square(x + row * dim, dim, epsilon);
    for (int64_t i = row * dim; i < (row + 1) * dim; ++i) {
      const double z = gate[i];
      y[i] = static_cast<float>(x[i] * factor * weight[i - row * dim] * z * sigmoid(z));
    }
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float* y, int64_t rows, int64_t dim,
                float epsilon) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * dim;
    double mean = 0;
    for (int64_t i = 0; i < dim; ++i) mean += from[i];
    mean /= static_cast<double>(dim);
    double variance = 0;
    for (int64_t i = 0; i < dim; ++i) variance += (from[i] - mean) * (from[i] - mean);
    variance /= static_cast<double>(dim);
    const double factor = 1.0 / std::sqrt(variance + epsilon);
    for (int64_t i = 0; i < dim; ++i) {
      y[row * dim + i] = static_cast<float>((from[i] - mean) * factor * weight[i] + bias[i]);
    }
  }
}

void gelu_tanh(const float* x, float* y, int64_t count) {
  const double root = std::sqrt(2 / std::numbers::pi);
  for (int64_t i = 0; i < count; ++i) {
    const double value = x[i];
    const double inner = root * (value + 0.044715 * value * value * value);
    y[i] = static_cast<float>(0.5 * value * (1 + std::tanh(inner)));
  }
}

void gelu_erf(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = x[i];
    y[i] = static_cast<float>(0.5 * value * std::erfc(-value / std::numbers::sqrt2));
  }
}

void gelu_quick(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i] * sigmoid(1.702 * x[i]));
}

void rope(float* x, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cosine,
          const float* sine) {
  const int64_t half = rotary_dim / 2;
  for (int64_t head = 0; head < heads; ++head) {
    float* first = x + head * head_dim;
    float* second = first + half;
    for (int64_t i = 0; i < half; ++i) {
      const double a = first[i];
      const double b = second[i];
      first[i] = static_cast<float>(a * cosine[i] - b * sine[i]);
      second[i] = static_cast<float>(b * cosine[i] + a * sine[i]);
    }
  }
}

void add(const float* a, const float* b, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

void silu_multiply(const float* gate, const float* up, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(gate[i] * sigmoid(gate[i]) * up[i]);
}

void sigmoid_multiply(const float* x, const float* gate, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i] * sigmoid(gate[i]));
}

void store_int8(const float* x, int8_t* y, float* scale, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float size = std::fabs(x[i]);
    if (!(size <= largest)) largest = size;
    if (!std::isfinite(size)) break;  // nothing is larger than infinity or NaN
  }
  const ActivationScale chosen = activation_scale(largest);
  *scale = chosen.scale;
  for (int64_t i = 0; i < count; ++i) {
    y[i] = chosen.inverse > 0 ? static_cast<int8_t>(std::nearbyint(x[i] * chosen.inverse)) : int8_t{0};
  }
}

void store_half(const float* x, uint16_t* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = float_to_half(x[i]);
}

}  // namespace hexlm::reference
