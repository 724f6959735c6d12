#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "formats/gguf.hpp"
#include "formats/json.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {

/// A GGUF file made in a test, byte by byte as the format's description says.
class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    uint32_t type = 0;
    std::vector<int64_t> shape;  ///< outermost first
    std::vector<uint8_t> bytes;
  };

  void add(const std::string& key, const std::string& value) {
    begin(key, 8);
    text(value);
  }
  void add(const std::string& key, uint32_t value) {
    begin(key, 4);
    put(value);
  }
  void add(const std::string& key, float value) {
    begin(key, 6);
    put(value);
  }
  void add(const std::string& key, bool value) {
    begin(key, 7);
    put(static_cast<uint8_t>(value ? 1 : 0));
  }
  void add(const std::string& key, const std::vector<std::string>& values) {
    begin(key, 9);
    put(uint32_t{8});
    put(uint64_t{values.size()});
    for (const std::string& value : values) text(value);
  }
  void add(const std::string& key, const std::vector<int32_t>& values) {
    begin(key, 9);
    put(uint32_t{5});
    put(uint64_t{values.size()});
    for (const int32_t value : values) put(value);
  }
  void add(Tensor tensor) { tensors_.push_back(std::move(tensor)); }

  std::string bytes() const {
    GgufWriter file;
    file.put(uint32_t{0x46554747});
    file.put(uint32_t{3});
    file.put(uint64_t{tensors_.size()});
    file.put(uint64_t{pairs_});
    file.out_ += out_;
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
      file.text(tensor.name);
      file.put(static_cast<uint32_t>(tensor.shape.size()));
      for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
        file.put(static_cast<uint64_t>(*size));
      }
      file.put(tensor.type);
      file.put(offset);
      offset += (tensor.bytes.size() + 31) / 32 * 32;
    }
    for (const Tensor& tensor : tensors_) {
      file.out_.resize((file.out_.size() + 31) / 32 * 32);
      file.out_.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
    return file.out_;
  }
  void write(const std::string& path) const { write_test_file(path, bytes()); }

 private:
  template <class Number>
  void put(Number value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(const std::string& value) {
    put(uint64_t{value.size()});
    out_ += value;
  }
  void begin(const std::string& key, uint32_t type) {
    text(key);
    put(type);
    ++pairs_;
  }
  std::string out_;
  uint64_t pairs_ = 0;
  std::vector<Tensor> tensors_;
};

inline float gguf_half(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return half_to_float(bits);
}

/// One block type: its size, which of its bytes are fp16 numbers, and what value i of a block is. The
/// formulas are those of the format's description, element by element, and share no code with the importer.
struct GgufBlockType {
  std::string name;
  uint32_t type = 0;
  int elements = 1;
  int bytes = 4;
  std::vector<int> halves;
  float (*value)(const uint8_t* block, int i) = nullptr;
};

inline int gguf_k_scale(const uint8_t* s, int j) {
  return j < 4 ? s[j] & 63 : (s[j + 4] & 0xF) | ((s[j - 4] >> 6) << 4);
}
inline int gguf_k_minimum(const uint8_t* s, int j) {
  return j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
}

inline std::vector<GgufBlockType> gguf_block_types() {
  return {
      {"Q4_0",
       2,
       32,
       18,
       {0},
       [](const uint8_t* b, int i) {
         const int q = i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4;
         return gguf_half(b) * static_cast<float>(q - 8);
       }},
      {"Q4_1",
       3,
       32,
       20,
       {0, 2},
       [](const uint8_t* b, int i) {
         const int q = i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4;
         return gguf_half(b) * static_cast<float>(q) + gguf_half(b + 2);
       }},
      {"Q8_0",
       8,
       32,
       34,
       {0},
       [](const uint8_t* b, int i) {
         return gguf_half(b) * static_cast<float>(static_cast<int8_t>(b[2 + i]));
       }},
      {"Q4_K",
       12,
       256,
       144,
       {0, 2},
       [](const uint8_t* b, int i) {
         const uint8_t pair = b[16 + i / 64 * 32 + i % 32];
         const int q = i / 32 % 2 == 0 ? pair & 15 : pair >> 4;
         const float d = gguf_half(b) * static_cast<float>(gguf_k_scale(b + 4, i / 32));
         const float m = gguf_half(b + 2) * static_cast<float>(gguf_k_minimum(b + 4, i / 32));
         return d * static_cast<float>(q) - m;
       }},
      {"Q5_K",
       13,
       256,
       176,
       {0, 2},
       [](const uint8_t* b, int i) {
         const uint8_t pair = b[48 + i / 64 * 32 + i % 32];
         const int low = i / 32 % 2 == 0 ? pair & 15 : pair >> 4;
         const int q = low + ((b[16 + i % 32] >> (i / 32)) & 1) * 16;
         const float d = gguf_half(b) * static_cast<float>(gguf_k_scale(b + 4, i / 32));
         const float m = gguf_half(b + 2) * static_cast<float>(gguf_k_minimum(b + 4, i / 32));
         return d * static_cast<float>(q) - m;
       }},
      {"Q6_K",
       14,
       256,
       210,
       {208},
       [](const uint8_t* b, int i) {
         const int half = i / 128;
         const int within = i % 128;
         const uint8_t low_byte = b[half * 64 + within % 64];
         const int low = within < 64 ? low_byte & 15 : low_byte >> 4;
         const int high = (b[128 + half * 32 + within % 32] >> (within / 32 * 2)) & 3;
         const auto scale = static_cast<int8_t>(b[192 + i / 16]);
         return gguf_half(b + 208) * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
       }},
      {"F16", 1, 1, 2, {0}, [](const uint8_t* b, int) { return gguf_half(b); }},
  };
}

/// Random blocks whose values have a deviation of about 0.03, and those values.
inline GgufWriter::Tensor random_blocks(const std::string& name, std::vector<int64_t> shape,
                                        const GgufBlockType& type, std::mt19937& generator,
                                        std::vector<float>& values) {
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  const auto blocks = static_cast<size_t>(elements / type.elements);
  GgufWriter::Tensor tensor{name, type.type, std::move(shape), std::vector<uint8_t>(blocks * type.bytes)};
  for (uint8_t& byte : tensor.bytes) byte = static_cast<uint8_t>(generator());
  const float unit = type.name == "Q6_K"   ? 1.5e-5F
                     : type.name == "Q8_0" ? 4e-4F
                     : type.name == "F16"  ? 0.03F
                     : type.bytes > 100    ? 1e-4F
                                           : 6e-3F;
  std::uniform_real_distribution<float> spread(0.5F, 1.5F);
  values.clear();
  for (size_t block = 0; block < blocks; ++block) {
    uint8_t* at = tensor.bytes.data() + block * type.bytes;
    for (const int offset : type.halves) {
      // Minimums are subtracted, offsets added: about half the range of the codes each.
      const float sign = type.name == "Q4_1" && offset == 2             ? -8
                         : type.name == "F16" && (generator() & 1) != 0 ? -1
                                                                        : 1;
      const uint16_t bits = float_to_half(sign * unit * spread(generator));
      std::memcpy(at + offset, &bits, 2);
    }
    for (int i = 0; i < type.elements; ++i) values.push_back(type.value(at, i));
  }
  return tensor;
}

inline GgufWriter::Tensor float_gguf(const std::string& name, std::vector<int64_t> shape,
                                     const std::vector<float>& values) {
  GgufWriter::Tensor tensor{name, 0, std::move(shape), std::vector<uint8_t>(values.size() * 4)};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

}  // namespace hexlm
