#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hexlm {

/// XXH3, 64 bits, seed 0. `Hasher` gives the same value for the concatenation of its updates.
uint64_t hash64(std::span<const std::byte> bytes);

class Hasher {
 public:
  Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  ~Hasher();
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  void* state_;
};

/// 16 lower-case hexadecimal digits.
std::string to_hex(uint64_t value);

}  // namespace hexlm
