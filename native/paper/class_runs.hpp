// Shared by the paper's kernels: checks of contents, runs of rows of one class, and the innermost loop of
// both steps, sums of table values at a tile of indices (lookup_sums.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "paper.hpp"

namespace bitclass {

// Rows [begin, end) all belong to one class.
struct ClassRun {
    std::size_t y;
    std::size_t begin;
    std::size_t end;
};

// Runs of consecutive rows of one class, in row order; y is checked.
std::vector<ClassRun> class_runs(const std::intptr_t* y, std::size_t n, std::size_t n_classes);

// Throws unless the classes of the runs are ascending.
void require_ascending(const std::vector<ClassRun>& runs);

// Throws if a bit beyond n_bits is set.
void require_padding(PackedRows codes, std::size_t n_bits, const char* name);

// 16-bit pieces of codes, each repeated in 32 bits: (n, n_pieces), n_pieces = ceil(n_bytes / 2).
std::vector<std::uint32_t> doubled_pieces(PackedRows codes);

// Pieces of codes, interleaved in groups of 32 codes: (groups, n_pieces, 32), zeros for codes past the end.
std::vector<std::uint16_t> grouped_pieces(PackedRows codes);

inline std::size_t pieces_of(std::size_t n_bytes) { return (n_bytes + 1) / 2; }

struct IndexTile {
    const std::uint16_t* indices;  // (n_rows, n_columns) with the given stride
    std::size_t stride;
    std::size_t n_rows;
    std::size_t n_columns;
    const double* row_weights;  // (n_rows,), or null if all are 1
};

// sums[c] += row_weights[i] * table[indices[i][c]], in row order, for two tables at the cost of one: they are
// interleaved in `pairs`, which is aligned to 16 bytes, and the indices are multiplied by 2.
void add_paired_lookups(const IndexTile& tile, const double* pairs, double* first_sums, double* second_sums);

}  // namespace bitclass
