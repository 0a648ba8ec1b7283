// Sums of table values picked by a tile of indices: the innermost loop of both training steps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitclass {

struct IndexTile {
    const std::uint16_t* indices;  // (n_rows, n_columns) with the given stride
    std::size_t stride;
    std::size_t n_rows;
    std::size_t n_columns;
    const double* row_weights;  // (n_rows,), or null where all are 1
};

// sums[c] += row_weights[i] * table[indices[i][c]], row after row, for two tables at once, at the price of
// one: they are interleaved in `pairs`, which is aligned to 16 bytes, and the indices are doubled.
void add_paired_lookups(const IndexTile& tile, const double* pairs, double* first_sums, double* second_sums);

}  // namespace bitclass
