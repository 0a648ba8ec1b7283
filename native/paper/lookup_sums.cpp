// Not vectorised: gathering 8 doubles takes longer than 8 additions with a memory operand. One
// accumulator per column, in a register, keeps the order of the sums; a dozen of them hide the latency
// of an addition.
#include "class_runs.hpp"

#include <cstring>
#include <utility>

namespace bitclass {
namespace {

// Accumulators held in registers: 16 vector registers, minus the row weight and temporaries.
constexpr int kMaxColumns = 12;

using Pair = double __attribute__((vector_size(16)));

template <bool weighted, int n_columns>
void add_columns(const IndexTile& tile, std::size_t first_column, const double* pairs, double* first, double* second) {
    Pair accumulators[n_columns];
    for (int c = 0; c < n_columns; ++c) accumulators[c] = Pair{first[c], second[c]};
    const std::uint16_t* indices = tile.indices + first_column;
    for (std::size_t i = 0; i < tile.n_rows; ++i, indices += tile.stride) {
        const double weight = weighted ? tile.row_weights[i] : 1.0;
        const auto add = [&](int c, std::size_t index) {
            Pair value;
            std::memcpy(&value, __builtin_assume_aligned(pairs + index, alignof(Pair)), sizeof value);
            accumulators[c] += weighted ? weight * value : value;
        };
        // Two indices per load: loads are the bottleneck of this loop.
#pragma GCC unroll 8
        for (int c = 0; c + 1 < n_columns; c += 2) {
            std::uint32_t two;
            std::memcpy(&two, indices + c, sizeof two);
            add(c, two & 0xffff);
            add(c + 1, two >> 16);
        }
        if constexpr (n_columns % 2 == 1) add(n_columns - 1, indices[n_columns - 1]);
    }
    for (int c = 0; c < n_columns; ++c) {
        first[c] = accumulators[c][0];
        second[c] = accumulators[c][1];
    }
}

template <bool weighted, int... counts>
void add_up_to(std::integer_sequence<int, counts...>, std::size_t n_columns, const IndexTile& tile,
               std::size_t first_column, const double* pairs, double* first, double* second) {
    using Function = void (*)(const IndexTile&, std::size_t, const double*, double*, double*);
    static constexpr Function by_count[] = {add_columns<weighted, counts + 1>...};
    by_count[n_columns - 1](tile, first_column, pairs, first + first_column, second + first_column);
}

}  // namespace

void add_paired_lookups(const IndexTile& tile, const double* pairs, double* first_sums, double* second_sums) {
    if (tile.n_columns == 0) return;
    // Groups of equal size: the additions of a last group of one or two columns would not overlap.
    const std::size_t n_groups = (tile.n_columns + kMaxColumns - 1) / kMaxColumns;
    std::size_t begin = 0;
    for (std::size_t group = 1; group <= n_groups; ++group) {
        const std::size_t end = tile.n_columns * group / n_groups;
        constexpr std::make_integer_sequence<int, kMaxColumns> counts;
        if (tile.row_weights != nullptr) {
            add_up_to<true>(counts, end - begin, tile, begin, pairs, first_sums, second_sums);
        } else {
            add_up_to<false>(counts, end - begin, tile, begin, pairs, first_sums, second_sums);
        }
        begin = end;
    }
}

}  // namespace bitclass
