#pragma once

#include <cstring>

#include "kernels/codes.hpp"
#include "kernels/generic/math.hpp"
#include "kernels/kernels.hpp"

/// Stored weights to floats for any vector type. Internal and static, see unroll.hpp.
namespace hexlm {
namespace {

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// Prepared once for a matrix, used for any part of any row.
template <class Vector>
class Dequantizer {
 public:
  explicit Dequantizer(const MatrixView& matrix)
      : matrix_(matrix),
        codes_(matrix.codec.is_float() ? 8 : matrix.codec.bits),
        row_bytes_(matrix.codec.row_bytes(matrix.columns)),
        groups_(matrix.codec.is_float() ? 0 : matrix.codec.groups(matrix.columns)) {}

  /// Columns begin … end−1 of a row. `begin` must be a multiple of 16.
  void run(int64_t row, int64_t begin, int64_t end, float* out) const {
    if (matrix_.codec.is_float()) return floats(matrix_.data + row * row_bytes_, begin, end, out);
    const int64_t group = matrix_.codec.group > 0 ? matrix_.codec.group : matrix_.columns;
    int64_t index = begin / group;
    for (int64_t at = begin; at < end; ++index) {
      const int64_t stop = smaller(end, (index + 1) * group);
      // A group of another size begins within a byte.
      if (group % 16 == 0 || matrix_.codec.group == 0) {
        codes(row, index, at, stop, out + (at - begin));
      } else {
        lone_codes(row, index, at, stop, out + (at - begin));
      }
      at = stop;
    }
  }

 private:
  /// weight = scale · code + offset. For symmetric codecs the offset is −scale · zero code: product and sum
  /// are then exact, as is scale · (code − zero code).
  struct Grid {
    float scale;
    float offset;
  };

  float part(const std::byte* scales, int64_t slot) const {
    return matrix_.codec.wide_scales ? load_f32(scales, slot) : Vector::from_half(load_u16(scales, slot));
  }

  Grid grid(int64_t row, int64_t group) const {
    const int64_t slot = row * groups_ + group;
    const float scale = part(matrix_.scales, slot);
    if (matrix_.codec.symmetric) {
      return {scale, scale * static_cast<float>(-symmetric_zero_code(matrix_.codec.bits))};
    }
    return {scale, part(matrix_.offsets, slot)};
  }

  void codes(int64_t row, int64_t group, int64_t begin, int64_t end, float* out) const {
    const Grid at = grid(row, group);
    const Vector scale(at.scale);
    const Vector offset(at.offset);
    const std::byte* from = matrix_.data + row * row_bytes_ + begin * matrix_.codec.bits / 8;
    const std::byte* last = matrix_.data + matrix_.rows * row_bytes_;
    const int64_t step = Vector::lanes * matrix_.codec.bits / 8;
    const auto next = [&] {
      const Vector weights = Vector::fma(codes_.load(from, last), scale, offset);
      from += step;
      return weights;
    };
    for_vectors<Vector>(
        end - begin, [&](int64_t i) { next().store(out + i); },
        [&](int64_t i, int64_t some) { next().store_some(out + i, some); });
  }

  void lone_codes(int64_t row, int64_t group, int64_t begin, int64_t end, float* out) const {
    const Grid at = grid(row, group);
    const std::byte* from = matrix_.data + row * row_bytes_;
    for (int64_t column = begin; column < end; ++column) {
      out[column - begin] =
          at.scale * static_cast<float>(code_at(from, matrix_.codec.bits, column)) + at.offset;
    }
  }

  void floats(const std::byte* row, int64_t begin, int64_t end, float* out) const {
    if (matrix_.codec.kind == Codec::Kind::f32) {
      std::memcpy(out, row + begin * 4, static_cast<size_t>(end - begin) * 4);
      return;
    }
    const bool half = matrix_.codec.kind == Codec::Kind::f16;
    const std::byte* from = row + begin * 2;
    for_vectors<Vector>(
        end - begin,
        [&](int64_t i) {
          (half ? Vector::load_half(from + i * 2) : Vector::load_bfloat16(from + i * 2)).store(out + i);
        },
        [&](int64_t i, int64_t some) {
          uint16_t last[Vector::lanes] = {};
          std::memcpy(last, from + i * 2, static_cast<size_t>(some) * 2);
          (half ? Vector::load_half(last) : Vector::load_bfloat16(last)).store_some(out + i, some);
        });
  }

  const MatrixView& matrix_;
  typename Vector::Codes codes_;
  int64_t row_bytes_;
  int64_t groups_;
};

}  // namespace
}  // namespace hexlm
