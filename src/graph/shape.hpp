#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hexlm {

/// A size that is known only when a step runs.
enum class Symbol : uint8_t {
  none,
  tokens,   ///< T: tokens of this step
  rows,     ///< R: rows whose logits are wanted
  patches,  ///< V: merged image cells of this step, each a token of the language model
};

/// One dimension: `value`, or `value` times the symbol.
struct Dim {
  int64_t value = 1;
  Symbol symbol = Symbol::none;
  bool operator==(const Dim&) const = default;
};

inline Dim dim(int64_t value) { return {value, Symbol::none}; }
inline constexpr Dim tokens_dim{1, Symbol::tokens};
inline constexpr Dim rows_dim{1, Symbol::rows};
inline constexpr Dim patches_dim{1, Symbol::patches};

using Shape = std::vector<Dim>;

/// What the symbols are in one step.
struct SymbolValues {
  int64_t tokens = 0;
  int64_t rows = 0;
  int64_t patches = 0;
};

int64_t evaluate(const Dim& dim, const SymbolValues& symbols);
int64_t elements(const Shape& shape, const SymbolValues& symbols);
/// "[T, 896]", "[R, 151936]", "[4V, 1024]"
std::string to_string(const Shape& shape);

}  // namespace hexlm
