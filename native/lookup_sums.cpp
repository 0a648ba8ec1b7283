// Why there are no vectors here: a look-up is one load whatever the width, and a processor that
// gathers 8 doubles takes longer than 8 additions with a memory operand. One accumulator a column,
// in a register, keeps the order of the sums; a dozen of them hide the latency of an addition.
#include "lookup_sums.hpp"

#include <cstring>
#include <utility>

namespace bitclass {
namespace {

// Accumulators in registers at a time: 16 vector registers, less a row weight and scratch.
constexpr int kMostColumns = 12;

using Pair = double __attribute__((vector_size(16)));

template <class Value>
struct Sums;

template <>
struct Sums<double> {
    double* sums;

    double get(std::size_t c) const { return sums[c]; }
    void set(std::size_t c, double value) const { sums[c] = value; }
    Sums from(std::size_t c) const { return {sums + c}; }
};

template <>
struct Sums<Pair> {
    double* first;
    double* second;

    Pair get(std::size_t c) const { return Pair{first[c], second[c]}; }
    void set(std::size_t c, Pair value) const {
        first[c] = value[0];
        second[c] = value[1];
    }
    Sums from(std::size_t c) const { return {first + c, second + c}; }
};

template <class Value>
inline Value value_at(const double* table, std::size_t index) {
    Value value;
    std::memcpy(&value, __builtin_assume_aligned(table + index, alignof(Value)), sizeof value);
    return value;
}

template <class Value, bool weighted, int n_columns>
void add_columns(const IndexTile& tile, std::size_t first_column, const double* table, Sums<Value> sums) {
    Value accumulators[n_columns];
    for (int c = 0; c < n_columns; ++c) accumulators[c] = sums.get(static_cast<std::size_t>(c));
    const std::uint16_t* indices = tile.indices + first_column;
    for (std::size_t i = 0; i < tile.n_rows; ++i, indices += tile.stride) {
        const double weight = weighted ? tile.row_weights[i] : 1.0;
        const auto add = [&](int c, std::size_t index) {
            const Value value = value_at<Value>(table, index);
            accumulators[c] += weighted ? weight * value : value;
        };
        // Two indices a load: loads are what this loop runs out of first.
#pragma GCC unroll 8
        for (int c = 0; c + 1 < n_columns; c += 2) {
            std::uint32_t two;
            std::memcpy(&two, indices + c, sizeof two);
            add(c, two & 0xffff);
            add(c + 1, two >> 16);
        }
        if constexpr (n_columns % 2 == 1) add(n_columns - 1, indices[n_columns - 1]);
    }
    for (int c = 0; c < n_columns; ++c) sums.set(static_cast<std::size_t>(c), accumulators[c]);
}

template <class Value, bool weighted, int... counts>
void add_up_to(std::integer_sequence<int, counts...>, std::size_t n_columns, const IndexTile& tile,
               std::size_t first_column, const double* table, Sums<Value> sums) {
    using Function = void (*)(const IndexTile&, std::size_t, const double*, Sums<Value>);
    static constexpr Function by_count[] = {add_columns<Value, weighted, counts + 1>...};
    by_count[n_columns - 1](tile, first_column, table, sums);
}

template <class Value>
void add_all(const IndexTile& tile, const double* table, Sums<Value> sums) {
    if (tile.n_columns == 0) return;
    // Groups of equal size: a last group of one or two columns would wait for its own additions.
    const std::size_t n_groups = (tile.n_columns + kMostColumns - 1) / kMostColumns;
    std::size_t begin = 0;
    for (std::size_t group = 1; group <= n_groups; ++group) {
        const std::size_t end = tile.n_columns * group / n_groups;
        constexpr std::make_integer_sequence<int, kMostColumns> counts;
        if (tile.row_weights != nullptr) {
            add_up_to<Value, true>(counts, end - begin, tile, begin, table, sums.from(begin));
        } else {
            add_up_to<Value, false>(counts, end - begin, tile, begin, table, sums.from(begin));
        }
        begin = end;
    }
}

}  // namespace

void add_lookups(const IndexTile& tile, const double* table, double* sums) {
    add_all<double>(tile, table, {sums});
}

void add_paired_lookups(const IndexTile& tile, const double* pairs, double* first_sums, double* second_sums) {
    add_all<Pair>(tile, pairs, {first_sums, second_sums});
}

}  // namespace bitclass
