#include <cmath>

#include "kernels/reference/reference.hpp"

namespace hexlm::reference {

namespace {

/// rsqrt(Σv² + ε), spec A.4 step 5.
double inverse_length(const float* v, int64_t count, float epsilon) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(v[i]) * v[i];
  return 1.0 / std::sqrt(sum + epsilon);
}

/// Spec A.4 step 6 for one token: decay, read, write, read-out. Columns of the state don't touch each other.
void step(const DeltaNetArguments& arguments, int64_t token) {
  const float* query = arguments.query + token * arguments.stride;
  const float* key = arguments.key + token * arguments.stride;
  const float* value = arguments.value + token * arguments.stride;
  const double decay = std::exp(static_cast<double>(arguments.log_decay[token * arguments.gate_stride]));
  const double beta = arguments.beta[token * arguments.gate_stride];
  const double query_scale = inverse_length(query, arguments.key_dim, arguments.epsilon) /
                             std::sqrt(static_cast<double>(arguments.key_dim));
  const double key_scale = inverse_length(key, arguments.key_dim, arguments.epsilon);
  for (int64_t column = 0; column < arguments.value_dim; ++column) {
    float* state = arguments.state + column;
    double read = 0;
    for (int64_t i = 0; i < arguments.key_dim; ++i) {
      read += key[i] * key_scale * decay * state[i * arguments.value_dim];
    }
    const double delta = beta * (value[column] - read);
    double output = 0;
    for (int64_t i = 0; i < arguments.key_dim; ++i) {
      const double updated = decay * state[i * arguments.value_dim] + key[i] * key_scale * delta;
      output += query[i] * query_scale * updated;
      state[i * arguments.value_dim] = static_cast<float>(updated);
    }
    arguments.output[token * arguments.output_stride + column] = static_cast<float>(output);
  }
}

}  // namespace

void causal_convolution(const float* x, int64_t tokens, int64_t channels, const float* weight, int64_t taps,
                        float* history, float* y, int64_t channel_begin, int64_t channel_end) {
  const int64_t kept = taps - 1;
  for (int64_t channel = channel_begin; channel < channel_end; ++channel) {
    // Input `index` counts from the oldest kept one.
    const auto input = [&](int64_t index) {
      return index < kept ? history[index * channels + channel] : x[(index - kept) * channels + channel];
    };
    for (int64_t token = 0; token < tokens; ++token) {
      double sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        sum += static_cast<double>(weight[channel * taps + tap]) * input(token + tap);
      }
      y[token * channels + channel] = static_cast<float>(sum / (1.0 + std::exp(-sum)));
    }
    for (int64_t i = 0; i < kept; ++i) history[i * channels + channel] = input(tokens + i);
  }
}

void delta_net(const DeltaNetArguments& arguments) {
  for (int64_t token = 0; token < arguments.tokens; ++token) step(arguments, token);
}

}  // namespace hexlm::reference
