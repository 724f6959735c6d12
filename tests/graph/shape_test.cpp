#include "graph/shape.hpp"

#include <gtest/gtest.h>

namespace hexlm {
namespace {

TEST(Shape, PrintsSymbolsWithTheirFactor) {
  EXPECT_EQ(to_string(Shape{tokens_dim, dim(896)}), "[T, 896]");
  EXPECT_EQ(to_string(Shape{rows_dim, dim(151936)}), "[R, 151936]");
  EXPECT_EQ(to_string(Shape{Dim{4, Symbol::patches}, dim(1024)}), "[4V, 1024]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Shape, EvaluatesEachSymbol) {
  const SymbolValues symbols{.tokens = 5, .rows = 2, .patches = 12};
  EXPECT_EQ(evaluate(dim(7), symbols), 7);
  EXPECT_EQ(evaluate(Dim{3, Symbol::tokens}, symbols), 15);
  EXPECT_EQ(evaluate(rows_dim, symbols), 2);
  EXPECT_EQ(evaluate(Dim{4, Symbol::patches}, symbols), 48);
}

TEST(Shape, CountsElements) {
  const SymbolValues symbols{.tokens = 5, .rows = 2, .patches = 12};
  EXPECT_EQ(elements({tokens_dim, dim(3), rows_dim}, symbols), 30);
  EXPECT_EQ(elements({}, symbols), 1);
  EXPECT_EQ(elements({tokens_dim, dim(8)}, {}), 0);
}

}  // namespace
}  // namespace hexlm
