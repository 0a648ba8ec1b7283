// Texts to classes in one pass: n-grams, columns, rows of the projection, signs, search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ngrams.hpp"
#include "search.hpp"
#include "sparse.hpp"

namespace bitclass {

// A hash function of sparse rows, read where Python holds it: see sparse_scores.
struct SparseProjection {
    KeptColumns kept;
    const float* floats;      // (k, n_bits), or null
    const std::int8_t* bytes;  // (k, n_bits), where floats is null
    const float* steps;       // (n_bits,), or null
    const float* intercept;   // (n_bits,)
    std::size_t n_bits;
};

// scores (n, n_bits) of texts, without the intercept, as sparse_scores gives them for their rows.
void text_scores(const NgramHasher& hasher, const SparseProjection& projection, const std::string_view* texts,
                 std::size_t n, float* scores);

// As predict and predict_rescored of encode.hpp. Without candidates (0) the nearest class is found, k is 1,
// and `scores` stays as it is.
void predict_texts(const NgramHasher& hasher, const SparseProjection& projection, const HammingIndex& index,
                   const std::vector<std::string_view>& texts, const float* scale, std::size_t n_candidates,
                   std::size_t k, std::int64_t* indices, std::int32_t* scores, std::int32_t* distances, int n_threads);

}  // namespace bitclass
