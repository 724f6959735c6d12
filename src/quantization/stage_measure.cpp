#include "quantization/stage_measure.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <vector>

namespace hexlm {

/// Values of one sample.
struct StageMeasure::Room {
  std::vector<float> x;
  std::vector<float> float_x;
  std::vector<float> sum;  ///< the float model's residual stream behind the half
  std::vector<float> lag;
  std::vector<float> factors;
};

/// What a half adds is seen through a norm by everything behind it: an error counts in proportion to 1 / rms
/// of the token's residual stream. The lag is what the quantized model's stream lacks where the half starts.
void StageMeasure::weigh_tokens(const Half& half, size_t sample, Room& room) const {
  const auto width = static_cast<size_t>(quantized_.width(half.to));
  const auto tokens = static_cast<size_t>(quantized_.rows(sample, half.to));
  const std::vector<float>& ahead = twin_->state(sample);
  const std::vector<float>& behind = quantized_.state(sample);
  for (size_t t = 0; t < tokens; ++t) {
    double square = 0;
    for (size_t c = t * width; c < (t + 1) * width; ++c) {
      square += static_cast<double>(room.sum[c]) * room.sum[c];
      room.lag[c] = ahead[c] - behind[c];
    }
    const double rms = std::sqrt(square / static_cast<double>(width));
    room.factors[t] = rms > 0 ? static_cast<float>(1 / rms) : 1;
  }
}

Result<InputMoments> StageMeasure::measure(const Half& half, const Stage& stage, size_t count) const {
  const bool residual = sees_residual(half, stage, twin_ != nullptr);
  HEXLM_ASSIGN(ActivationFlow::Part part, quantized_.prepare({half.from}, std::array{stage.input}));
  std::optional<ActivationFlow::Part> twin;
  if (twin_ != nullptr) {
    std::vector<ValueId> wanted = {stage.input};
    if (residual) wanted.push_back(half.to);
    HEXLM_ASSIGN(twin, twin_->prepare({half.from}, wanted));
  }
  const int64_t columns = quantized_.width(stage.input);
  const int64_t outputs = residual ? quantized_.width(half.to) : 0;
  const int64_t most = quantized_.most_rows(stage.input);
  MomentSums sums(columns, twin_ != nullptr, outputs);
  Room room;
  room.x.resize(static_cast<size_t>(most * columns));
  if (twin_ != nullptr) room.float_x.resize(room.x.size());
  room.sum.resize(static_cast<size_t>(most * outputs));
  room.lag.resize(room.sum.size());
  room.factors.resize(static_cast<size_t>(residual ? most : 0));
  for (size_t i = 0; i < count; ++i) {
    HEXLM_TRY(quantized_.run(part, i, std::array{room.x.data()}));
    if (twin) {
      const std::array<float*, 2> into = {room.float_x.data(), room.sum.data()};
      HEXLM_TRY(twin_->run(*twin, i, std::span(into).first(residual ? 2 : 1)));
    }
    if (residual) weigh_tokens(half, i, room);
    sums.add({quantized_.rows(i, stage.input), room.x.data(), twin ? room.float_x.data() : nullptr,
              residual ? room.lag.data() : nullptr, residual ? room.factors.data() : nullptr},
             pool_);
  }
  return std::move(sums).finish(stage.linears[0]->name);
}

}  // namespace hexlm
