#include "evaluation/assignment.hpp"

#include <algorithm>
#include <limits>

namespace hexlm {
namespace {

/// The shortest augmenting path method on a square matrix of costs, with potentials of rows and columns.
/// Index 0 stands for "none", as is usual for this algorithm.
std::vector<int> least_cost_columns(const std::vector<std::vector<double>>& cost) {
  const size_t n = cost.size();
  std::vector<double> row_potential(n + 1, 0);
  std::vector<double> column_potential(n + 1, 0);
  std::vector<size_t> row_of(n + 1, 0);
  for (size_t row = 1; row <= n; ++row) {
    std::vector<double> slack(n + 1, std::numeric_limits<double>::infinity());
    std::vector<size_t> previous(n + 1, 0);
    std::vector<bool> visited(n + 1, false);
    row_of[0] = row;
    size_t column = 0;
    do {
      visited[column] = true;
      const size_t current = row_of[column];
      double step = std::numeric_limits<double>::infinity();
      size_t next = 0;
      for (size_t j = 1; j <= n; ++j) {
        if (visited[j]) continue;
        const double reduced = cost[current - 1][j - 1] - row_potential[current] - column_potential[j];
        if (reduced < slack[j]) {
          slack[j] = reduced;
          previous[j] = column;
        }
        if (slack[j] < step) {
          step = slack[j];
          next = j;
        }
      }
      for (size_t j = 0; j <= n; ++j) {
        if (visited[j]) {
          row_potential[row_of[j]] += step;
          column_potential[j] -= step;
        } else {
          slack[j] -= step;
        }
      }
      column = next;
    } while (row_of[column] != 0);
    while (column != 0) {
      row_of[column] = row_of[previous[column]];
      column = previous[column];
    }
  }
  std::vector<int> column_of(n, -1);
  for (size_t j = 1; j <= n; ++j) column_of[row_of[j] - 1] = static_cast<int>(j) - 1;
  return column_of;
}

}  // namespace

std::vector<int> best_assignment(const std::vector<std::vector<double>>& gain, size_t columns) {
  const size_t size = std::max(gain.size(), columns);
  std::vector<std::vector<double>> cost(size, std::vector<double>(size, 0));
  for (size_t i = 0; i < gain.size(); ++i) {
    for (size_t j = 0; j < columns; ++j) cost[i][j] = -gain[i][j];
  }
  std::vector<int> assigned = least_cost_columns(cost);
  assigned.resize(gain.size());
  for (int& column : assigned) {
    if (column >= static_cast<int>(columns)) column = -1;
  }
  return assigned;
}

}  // namespace hexlm
