// Products of sparse rows and a projection, and gradient steps of that projection on sparse mini-batches.
//
// A row is a list of (column, value) pairs; a column of the features is a row of the projection, so both
// directions read and write whole rows of it. Sums over the entries of a row, or over the rows of a batch,
// are in order, whatever the number of threads or the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitclass {

// Rows in compressed form (CSR).
struct SparseRows {
    const std::int64_t* starts;  // (n + 1,)
    const std::int32_t* columns;
    const float* values;
    std::size_t n;
};

// A projection of k of d columns, and the intercept of its hash function.
struct SparseProjection {
    const std::int32_t* places;  // (d,) row of the projection for each column, or -1; null for the identity
    const float* factors;        // (k,) by which values are multiplied, or null
    const float* floats;         // (k, n_bits), or null
    const std::int8_t* bytes;    // (k, n_bits), if floats is null
    const float* steps;          // (n_bits,) by which scores are multiplied, or null
    const float* intercept;      // (n_bits,), not part of the scores
    std::size_t n_bits;
};

// An entry of a row after the lookup of its column: a row of the projection, and its factor.
struct SparseEntry {
    std::uint32_t place;
    float value;
};

// Implemented by each SIMD level.
struct SparseKernels {
    // sums[b] = sum over the entries of value * table[place][b].
    void (*add_floats)(const SparseEntry* entries, std::size_t n_entries, const float* table, std::size_t n_bits,
                       float* sums);
    void (*add_bytes)(const SparseEntry* entries, std::size_t n_entries, const std::int8_t* table, std::size_t n_bits,
                      float* sums);
    // values[b] -= factor * gradient[b].
    void (*subtract)(float* values, const float* gradient, float factor, std::size_t n_bits);
    // Mean of the squares, summed in 16 lanes.
    float (*mean_square)(const float* gradient, std::size_t n_bits);
};

// scores (n, n_bits) = rows times projection.
void sparse_scores(const SparseRows& rows, const SparseProjection& projection, float* scores, int n_threads);

// One step of the projection against the gradient X'G, for the columns that occur in the rows.
//
// A column moves by `size` times its gradient, divided by the root of the running mean of its mean squares.
// That mean, one number per column, is updated only in steps in which the column occurs, so that rare
// columns move as far as frequent ones.
//   gradients : (n, n_bits), with respect to the scores
//   projection : (k, n_bits); squares : (k,), running means; counts : (k,), steps so far
void sparse_step(const SparseRows& rows, const float* gradients, float size, float* projection, float* squares,
                 std::int32_t* counts, std::size_t n_columns, std::size_t n_bits, int n_threads);

}  // namespace bitclass
