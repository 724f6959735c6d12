#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "models/model_config.hpp"

namespace hexlm {
namespace {

/// theta^(2j/R) in float32, as torch computes `base ** (arange(0, R, 2).float() / R)`.
std::vector<float> position_periods(double theta, int64_t rotary_dim) {
  std::vector<float> periods;
  periods.reserve(static_cast<size_t>(rotary_dim) / 2);
  for (int64_t i = 0; i + 1 < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    periods.push_back(std::pow(static_cast<float>(theta), exponent));
  }
  return periods;
}

/// The frequency index (a real number) that turns `rotations` times within `context` positions.
double correction_dim(double rotations, const RopeConfig& config, int64_t rotary_dim) {
  const double context = static_cast<double>(config.original_max_position);
  return static_cast<double>(rotary_dim) * std::log(context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

/// Spec A.1, "YaRN": high frequencies stay, low ones are divided by the factor, a linear ramp lies between.
std::vector<float> yarn_frequencies(const RopeConfig& config, int64_t rotary_dim,
                                    std::vector<float> periods) {
  double low = correction_dim(config.beta_fast, config, rotary_dim);
  double high = correction_dim(config.beta_slow, config, rotary_dim);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  const auto begin = static_cast<float>(low);
  const auto width = static_cast<float>(high - low);
  const auto factor = static_cast<float>(config.factor);
  for (size_t j = 0; j < periods.size(); ++j) {
    const float ramp = std::clamp((static_cast<float>(j) - begin) / width, 0.0F, 1.0F);
    const float keep = 1.0F - ramp;
    periods[j] = 1.0F / (factor * periods[j]) * (1.0F - keep) + 1.0F / periods[j] * keep;
  }
  return periods;
}

/// Spec C, "Llama-3 rope scaling": by wavelength against the context of pretraining.
float llama3_frequency(const RopeConfig& config, float inverse) {
  const auto context = static_cast<double>(config.original_max_position);
  const auto low = static_cast<float>(config.low_freq_factor);
  const auto factor = static_cast<float>(config.factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / inverse;
  if (wavelength < static_cast<float>(context / config.high_freq_factor)) return inverse;
  if (wavelength > static_cast<float>(context / config.low_freq_factor)) return inverse / factor;
  const float smooth = (static_cast<float>(context) / wavelength - low) /
                       static_cast<float>(config.high_freq_factor - config.low_freq_factor);
  return (1.0F - smooth) * inverse / factor + smooth * inverse;
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double attention_factor(const RopeConfig& config) {
  if (config.type != RopeConfig::Type::yarn) return 1;
  if (config.attention_factor) return *config.attention_factor;
  const double mscale = config.mscale.value_or(0);
  const double mscale_all_dim = config.mscale_all_dim.value_or(0);
  if (mscale != 0 && mscale_all_dim != 0) {
    return yarn_mscale(config.factor, mscale) / yarn_mscale(config.factor, mscale_all_dim);
  }
  return yarn_mscale(config.factor, 1);
}

std::vector<float> frequencies(const RopeConfig& config, int64_t rotary_dim) {
  std::vector<float> values = position_periods(config.theta, rotary_dim);
  if (config.type == RopeConfig::Type::yarn) return yarn_frequencies(config, rotary_dim, std::move(values));
  for (float& value : values) {
    value = 1.0F / value;
    if (config.type == RopeConfig::Type::linear) value /= static_cast<float>(config.factor);
    if (config.type == RopeConfig::Type::llama3) value = llama3_frequency(config, value);
  }
  return values;
}

/// Spec A.1, "M-RoPE": chunked sections follow each other; interleaved ones take every third frequency.
std::vector<uint8_t> streams(const RopeConfig& config, size_t pairs) {
  std::vector<uint8_t> stream(pairs, 0);
  const auto& section = config.mrope_section;
  if (section.size() != 3) return stream;
  if (config.mrope_interleaved) {
    for (uint8_t axis = 1; axis < 3; ++axis) {
      const size_t end = std::min(pairs, static_cast<size_t>(3 * section[axis]));
      for (size_t j = axis; j < end; j += 3) stream[j] = axis;
    }
    return stream;
  }
  const auto height = static_cast<size_t>(section[0]);
  const auto width = static_cast<size_t>(section[0] + section[1]);
  for (size_t j = height; j < pairs; ++j) stream[j] = j < width ? 1 : 2;
  return stream;
}

}  // namespace

op::Rope make_rope(const RopeConfig& config, int64_t head_dim) {
  op::Rope rope;
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * config.partial_rotary_factor);
  rope.inverse_frequencies = frequencies(config, rope.rotary_dim);
  rope.stream = streams(config, rope.inverse_frequencies.size());
  rope.attention_factor = static_cast<float>(attention_factor(config));
  return rope;
}

}  // namespace hexlm
