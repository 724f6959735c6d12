#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "checkpoint_edit.hpp"
#include "formats/checkpoint_weights.hpp"

namespace hexlm {

// Packers of the formats of spec D.9, written from the specification alone; they share no code with the
// importers.

/// A random grid over one matrix [rows, columns], quantized the way a packer's format holds it.
struct PackedMatrixValues {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t group = 0;  ///< columns per group
  int bits = 4;
  std::vector<int> codes;     ///< [rows, columns], unsigned
  std::vector<int> zeros;     ///< [rows, groups], unsigned
  std::vector<float> scales;  ///< [rows, groups], exact in `scale_type`
  std::vector<int> group_of;  ///< of each column
  DType scale_type = DType::f16;

  int64_t groups() const { return columns / group; }
  /// w = scale · (code − zero), in double and rounded once.
  std::vector<float> dequantized() const {
    std::vector<float> values(codes.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<size_t>(r * columns + c);
        const auto slot = static_cast<size_t>(r * groups() + group_of[static_cast<size_t>(c)]);
        values[at] = static_cast<float>(static_cast<double>(scales[slot]) * (codes[at] - zeros[slot]));
      }
    }
    return values;
  }
};

struct PackingOptions {
  int bits = 4;
  int64_t group = 32;  ///< −1: per channel
  bool symmetric = true;
  DType scale_type = DType::f16;
  bool act_order = false;
};

inline PackedMatrixValues random_matrix(int64_t rows, int64_t columns, const PackingOptions& options,
                                        std::mt19937& generator) {
  PackedMatrixValues matrix{rows,         columns, options.group < 0 ? columns : options.group,
                            options.bits, {},      {},
                            {},           {},      options.scale_type};
  const int levels = 1 << options.bits;
  std::uniform_int_distribution<int> code(0, levels - 1);
  std::uniform_int_distribution<int> zero(1, levels - 1);
  std::uniform_real_distribution<float> scale(0.5F, 1.5F);
  for (int64_t i = 0; i < rows * columns; ++i) matrix.codes.push_back(code(generator));
  const float unit = 0.15F / static_cast<float>(levels);
  for (int64_t i = 0; i < rows * matrix.groups(); ++i) {
    matrix.zeros.push_back(options.symmetric ? levels / 2 : zero(generator));
    const float value = scale(generator) * unit;
    matrix.scales.push_back(options.scale_type == DType::f16 ? half_to_float(float_to_half(value))
                                                             : bfloat16_to_float(float_to_bfloat16(value)));
  }
  for (int64_t i = 0; i < columns; ++i) matrix.group_of.push_back(static_cast<int>(i / matrix.group));
  if (options.act_order) std::shuffle(matrix.group_of.begin(), matrix.group_of.end(), generator);
  return matrix;
}

inline EditableTensor words_tensor(const std::string& name, std::vector<int64_t> shape,
                                   const std::vector<uint32_t>& words) {
  EditableTensor tensor{name, DType::i32, std::move(shape), {}};
  tensor.bytes.resize(words.size() * 4);
  std::memcpy(tensor.bytes.data(), words.data(), tensor.bytes.size());
  return tensor;
}

inline EditableTensor scales_tensor(const std::string& name, const PackedMatrixValues& matrix,
                                    bool group_major) {
  const int64_t groups = matrix.groups();
  std::vector<uint16_t> halves(matrix.scales.size());
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const float value = matrix.scales[static_cast<size_t>(r * groups + g)];
      const auto at = static_cast<size_t>(group_major ? g * matrix.rows + r : r * groups + g);
      halves[at] = matrix.scale_type == DType::f16 ? float_to_half(value) : float_to_bfloat16(value);
    }
  }
  EditableTensor tensor{name, matrix.scale_type, {matrix.rows, groups}, {}};
  if (group_major) tensor.shape = {groups, matrix.rows};
  tensor.bytes.resize(halves.size() * 2);
  std::memcpy(tensor.bytes.data(), halves.data(), tensor.bytes.size());
  return tensor;
}

/// Appends `bits` bits at position `at` of a little-endian bit stream of 32-bit words.
inline void put_bits(std::vector<uint32_t>& words, size_t at, int bits, uint32_t value) {
  for (int i = 0; i < bits; ++i) words[(at + i) / 32] |= (value >> i & 1U) << ((at + i) % 32);
}

using Packer = std::function<std::vector<EditableTensor>(const std::string& stem, const PackedMatrixValues&)>;

/// qweight: for each output a stream of codes down the rows of words; qzeros: for each group a stream along
/// outputs.
inline std::vector<EditableTensor> pack_gptq(const std::string& stem, const PackedMatrixValues& m,
                                             int zero_bias) {
  const auto rows = static_cast<size_t>(m.rows);
  const auto columns = static_cast<size_t>(m.columns);
  const size_t word_rows = columns * static_cast<size_t>(m.bits) / 32;
  std::vector<uint32_t> weights(word_rows * rows);
  for (size_t o = 0; o < rows; ++o) {
    std::vector<uint32_t> stream(word_rows);
    for (size_t i = 0; i < columns; ++i) {
      put_bits(stream, i * static_cast<size_t>(m.bits), m.bits,
               static_cast<uint32_t>(m.codes[o * columns + i]));
    }
    for (size_t w = 0; w < word_rows; ++w) weights[w * rows + o] = stream[w];
  }
  const auto groups = static_cast<size_t>(m.groups());
  const size_t zero_words = rows * static_cast<size_t>(m.bits) / 32;
  std::vector<uint32_t> zeros;
  for (size_t g = 0; g < groups; ++g) {
    std::vector<uint32_t> stream(zero_words);
    for (size_t o = 0; o < rows; ++o) {
      put_bits(stream, o * static_cast<size_t>(m.bits), m.bits,
               static_cast<uint32_t>(m.zeros[o * groups + g] - zero_bias));
    }
    zeros.insert(zeros.end(), stream.begin(), stream.end());
  }
  const std::vector<uint32_t> index(m.group_of.begin(), m.group_of.end());
  return {words_tensor(stem + ".qweight", {static_cast<int64_t>(word_rows), m.rows}, weights),
          words_tensor(stem + ".qzeros", {m.groups(), static_cast<int64_t>(zero_words)}, zeros),
          scales_tensor(stem + ".scales", m, true), words_tensor(stem + ".g_idx", {m.columns}, index)};
}

inline std::vector<EditableTensor> pack_awq(const std::string& stem, const PackedMatrixValues& m) {
  constexpr int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // nibble k of a word holds output 8w + order[k]
  const auto rows = static_cast<size_t>(m.rows);
  const auto groups = static_cast<size_t>(m.groups());
  const auto pack = [&](size_t lines, const std::function<int(size_t, size_t)>& value) {
    std::vector<uint32_t> words(lines * rows / 8);
    for (size_t line = 0; line < lines; ++line) {
      for (size_t w = 0; w < rows / 8; ++w) {
        for (size_t k = 0; k < 8; ++k) {
          words[line * (rows / 8) + w] |= static_cast<uint32_t>(value(line, 8 * w + order[k])) << (4 * k);
        }
      }
    }
    return words;
  };
  const auto columns = static_cast<size_t>(m.columns);
  return {words_tensor(stem + ".qweight", {m.columns, m.rows / 8},
                       pack(columns, [&](size_t i, size_t o) { return m.codes[o * columns + i]; })),
          words_tensor(stem + ".qzeros", {m.groups(), m.rows / 8},
                       pack(groups, [&](size_t g, size_t o) { return m.zeros[o * groups + g]; })),
          scales_tensor(stem + ".scales", m, true)};
}

inline std::vector<EditableTensor> pack_compressed(const std::string& stem, const PackedMatrixValues& m,
                                                   bool symmetric, bool act_order) {
  const auto per_word = static_cast<size_t>(32 / m.bits);
  const auto rows = static_cast<size_t>(m.rows);
  const auto columns = static_cast<size_t>(m.columns);
  const auto groups = static_cast<size_t>(m.groups());
  const size_t width = (columns + per_word - 1) / per_word;
  std::vector<uint32_t> weights(rows * width);
  for (size_t o = 0; o < rows; ++o) {
    for (size_t i = 0; i < columns; ++i) {
      weights[o * width + i / per_word] |= static_cast<uint32_t>(m.codes[o * columns + i])
                                           << (i % per_word * static_cast<size_t>(m.bits));
    }
  }
  std::vector<EditableTensor> tensors = {
      words_tensor(stem + ".weight_packed", {m.rows, static_cast<int64_t>(width)}, weights),
      scales_tensor(stem + ".weight_scale", m, false)};
  if (!symmetric) {
    const size_t lines = (rows + per_word - 1) / per_word;
    std::vector<uint32_t> zeros(lines * groups);
    for (size_t o = 0; o < rows; ++o) {
      for (size_t g = 0; g < groups; ++g) {
        zeros[o / per_word * groups + g] |= static_cast<uint32_t>(m.zeros[o * groups + g])
                                            << (o % per_word * static_cast<size_t>(m.bits));
      }
    }
    tensors.push_back(
        words_tensor(stem + ".weight_zero_point", {static_cast<int64_t>(lines), m.groups()}, zeros));
  }
  if (act_order) {
    tensors.push_back(words_tensor(stem + ".weight_g_idx", {m.columns},
                                   std::vector<uint32_t>(m.group_of.begin(), m.group_of.end())));
  }
  EditableTensor shape{stem + ".weight_shape", DType::i64, {2}, std::vector<std::byte>(16)};
  const int64_t sizes[2] = {m.rows, m.columns};
  std::memcpy(shape.bytes.data(), sizes, 16);
  tensors.push_back(std::move(shape));
  return tensors;
}

inline EditableTensor float_tensor(const std::string& name, std::vector<int64_t> shape,
                                   const std::vector<float>& values) {
  EditableTensor tensor{name, DType::f32, std::move(shape), {}};
  tensor.bytes.resize(values.size() * 4);
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

inline bool is_decoder_matrix(const EditableTensor& tensor) {
  return tensor.shape.size() == 2 && tensor.name.find("_proj.weight") != std::string::npos;
}

}  // namespace hexlm
