#pragma once

#include <cstddef>
#include <vector>

namespace hexlm {

/// Pairs rows with columns so that the sum of gain[row][column] is greatest (Kuhn and Munkres, O(n³)).
/// Returns the column of each row, −1 for rows left over when there are more rows than columns.
std::vector<int> best_assignment(const std::vector<std::vector<double>>& gain, size_t columns);

}  // namespace hexlm
