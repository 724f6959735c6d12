#include "graph/shape.hpp"

#include <fmt/format.h>
#include <string_view>

namespace hexlm {

int64_t evaluate(const Dim& dim, const SymbolValues& symbols) {
  switch (dim.symbol) {
    case Symbol::none:
      return dim.value;
    case Symbol::tokens:
      return dim.value * symbols.tokens;
    case Symbol::rows:
      return dim.value * symbols.rows;
    case Symbol::patches:
      return dim.value * symbols.patches;
  }
  return 0;
}

int64_t elements(const Shape& shape, const SymbolValues& symbols) {
  int64_t product = 1;
  for (const Dim& dim : shape) product *= evaluate(dim, symbols);
  return product;
}

namespace {

std::string_view letter(Symbol symbol) {
  switch (symbol) {
    case Symbol::none:
      return "";
    case Symbol::tokens:
      return "T";
    case Symbol::rows:
      return "R";
    case Symbol::patches:
      return "V";
  }
  return "";
}

std::string dim_text(const Dim& dim) {
  if (dim.symbol != Symbol::none && dim.value == 1) return std::string(letter(dim.symbol));
  return fmt::format("{}{}", dim.value, letter(dim.symbol));
}

}  // namespace

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += dim_text(shape[i]);
  }
  return text + "]";
}

}  // namespace hexlm
