// The kernels of the paper's method: functions of pointers and sizes. tests/native/reference.py defines what each
// computes, including the order of its sums. Invalid contents of an array throw std::invalid_argument
// with the name of the argument; shapes are checked by the bindings.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitclass {

// Half margins are 16 bits wide.
constexpr std::size_t kMaxTrainingBits = 8191;

// A difference of two sums that is smaller than this fraction of them is rounding error.
constexpr double kRelativeTolerance = 1e-12;

struct PackedRows {
    const std::uint8_t* codes;  // (n, n_bytes)
    std::size_t n;
    std::size_t n_bytes;
};

struct PairTables {
    const double* values;  // (2, 2 * n_bits + 1)
    std::size_t n_bits;
};

struct TrainingRows {
    const std::intptr_t* y;     // (n,) ascending
    const double* row_weights;  // (n,)
    std::size_t n;
    std::size_t n_classes;
};

// bit is the index of the bit; sums (2, 2, C, C).
void pair_sums(PackedRows codes, PackedRows weights, std::size_t bit, TrainingRows rows, PairTables tables,
               double* sums, int n_threads);

struct CodeUpdate {
    PackedRows codes;
    PackedRows weights;
    const std::intptr_t* y;     // (n,)
    const double* row_weights;  // (n,)
    std::size_t n_bits;
    const double* values;  // (4 * n_bits + 1,), which must not decrease
    double log_step;
    std::uint8_t* new_codes;  // (n, n_bytes)
    double* log_decreases;    // (n_bits,)
};

void update_codes(const CodeUpdate& update, int n_threads);

}  // namespace bitclass
