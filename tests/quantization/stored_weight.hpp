#pragma once

#include <random>
#include <string>
#include <vector>

#include "quantization/quantizer.hpp"

namespace hexlm {

/// A WeightView over encoded rows, which must outlive it.
inline WeightView view_of(const EncodedRows& encoded, int64_t rows, int64_t columns, const Codec& codec) {
  WeightView weight;
  weight.name = "w";
  weight.codec = codec;
  weight.shape = {rows, columns};
  weight.data.bytes = encoded.data;
  if (codec.is_float()) {
    weight.data.dtype = codec.kind == Codec::Kind::f32   ? DType::f32
                        : codec.kind == Codec::Kind::f16 ? DType::f16
                                                         : DType::bf16;
  } else {
    weight.data.dtype = DType::u8;
    weight.scales.bytes = std::as_bytes(std::span(encoded.scales));
    weight.offsets.bytes = std::as_bytes(std::span(encoded.offsets));
  }
  return weight;
}

/// Normal weights of the size that trained models have, with a few outliers.
inline std::vector<float> random_weights(size_t count, uint32_t seed, float deviation = 0.02F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> weights(count);
  for (size_t i = 0; i < count; ++i) weights[i] = normal(engine) * (i % 97 == 0 ? 8.0F : 1.0F);
  return weights;
}

inline Codec integer_codec(int bits, int64_t group, bool symmetric) {
  return {Codec::Kind::integer, bits, group, symmetric};
}

}  // namespace hexlm
