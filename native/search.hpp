// Hamming search over prepared class weights: the nearest class of each code, or the k nearest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aligned.hpp"

namespace bitclass {

// Class weights as the scans read them. Codes are seen as 32-bit words; `width` classes stand side
// by side in a group, word by word: words[(group * n_words + word) * width + lane]. The lanes
// behind the last class repeat it: they never win against the lower index.
struct ClassGroups {
    const std::uint32_t* words;
    std::size_t n_groups;
    std::size_t n_words;
    std::size_t n_classes;
};

// The best classes of one code seen so far, as keys distance << 32 | class.
struct Candidates {
    std::uint64_t* keys;
    std::size_t size;
    std::size_t capacity;
    std::size_t k;
    // Classes come in ascending order, so at equal distance a later one loses: only classes
    // strictly below the distance of the k-th best are offered.
    std::uint32_t threshold;
};

// Takes a class below the threshold among the candidates.
void offer(Candidates& candidates, std::uint64_t key);

// What each SIMD level implements.
struct SearchKernels {
    std::size_t width;  // classes a group
    // best[i] holds the smallest key of query i so far (all ones at first), and is lowered.
    void (*nearest)(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                    std::uint64_t* best);
    // scores[i * n_classes + c] = n_bits - 2 * distance of query i and class c.
    void (*scores)(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                   std::int32_t n_bits, std::int32_t* scores);
    void (*collect)(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                    Candidates* candidates);
};

namespace portable {
extern const SearchKernels search_kernels;
}
namespace avx2 {
extern const SearchKernels search_kernels;
}
namespace avx512 {
extern const SearchKernels search_kernels;
}
namespace neon {
extern const SearchKernels search_kernels;
}

class HammingIndex {
public:
    // Weights are packed rows of n_bytes; n_classes in [1, 2^31), n_bytes in [1, kMostBytes].
    HammingIndex(const std::uint8_t* weights, std::size_t n_classes, std::size_t n_bytes);

    // Codes are n packed rows of n_bytes(). Ties go to the lowest class index.
    void nearest(const std::uint8_t* codes, std::size_t n, std::int64_t* indices, std::int32_t* distances,
                 int n_threads) const;
    // Results are n rows of k, ordered by (distance, class index); k in [1, n_classes()].
    void top_k(const std::uint8_t* codes, std::size_t n, std::size_t k, std::int64_t* indices,
               std::int32_t* distances, int n_threads) const;

    // Inner products of codes and weights of n_bits: n rows of n_classes().
    void scores(const std::uint8_t* codes, std::size_t n, std::size_t n_bits, std::int32_t* scores,
                int n_threads) const;

    std::size_t n_classes() const { return n_classes_; }
    std::size_t n_bytes() const { return n_bytes_; }

    static constexpr std::size_t kMostBytes = 125000;  // 1,000,000 bits; a distance has 20 bits in a key

private:
    void words_of(const std::uint8_t* codes, std::size_t n, std::uint32_t* words) const;
    ClassGroups groups() const;

    const SearchKernels& kernels_;
    std::size_t n_classes_;
    std::size_t n_bytes_;
    std::size_t n_words_;
    std::size_t n_groups_;
    AlignedArray<std::uint32_t> words_;
};

}  // namespace bitclass
