// Hamming search over class weights: the nearest class of each code, or the k nearest.
#pragma once

#include <cstddef>
#include <cstdint>

#include <memory>
#include <vector>

#include "aligned.hpp"

namespace bitclass {

class ClassIndex;

// Classes that are interleaved and scanned together.
constexpr std::size_t kGroupClasses = 64;

// Class weights in the layout of the scans, with the bytes of 64 classes interleaved:
// bytes[(group * n_bytes + byte) * 64 + lane]. Lanes past the last class repeat it, and lose ties to it.
struct ClassGroups {
    const std::uint8_t* bytes;
    std::size_t n_groups;
    std::size_t n_bytes;
    std::size_t n_classes;
    const std::uint64_t* rows;  // the same weights, not interleaved, padded to 64-bit words
    // Added to the distances: see Handicaps.
    const std::uint32_t* handicaps = nullptr;
    const std::uint8_t* byte_handicaps = nullptr;
    std::uint32_t max_handicap = 0;
};

// Numbers that are added to the distances of classes before they are compared, which is how a class bias enters a
// scan: the class with the largest bias has none. One per lane of ClassGroups; null pointers if all are 0.
struct Handicaps {
    // Distances plus handicaps are counted in 8-bit lanes if no handicap is larger.
    static constexpr std::uint32_t kMaxInBytes = 127;

    AlignedArray<std::uint32_t> of_lane;
    AlignedArray<std::uint8_t> bytes;  // the same in 8 bits; empty if the largest exceeds kMaxInBytes
    std::uint32_t largest = 0;

    Handicaps() = default;
    explicit Handicaps(std::size_t n_lanes) : of_lane(n_lanes) {}
    // To be called once all lanes are set.
    void narrow();
    // The handicaps of `groups`, which start at lane `first`.
    void add_to(ClassGroups& groups, std::size_t first = 0) const;
};

// The nearest classes of one code, ordered by index while they are collected; distances include handicaps. Both arrays
// have candidate_room(wanted) entries.
struct Candidates {
    std::uint32_t* distances;
    std::uint32_t* classes;
    std::size_t size;
    std::size_t wanted;
    // Classes are scanned in ascending order, so a later one loses ties: only classes strictly below the
    // largest distance of the best so far are added.
    std::uint32_t threshold;
};

// Classes that are scanned between two checks of the size of the list.
constexpr std::size_t kClassesPerBlock = 4096;

// Surplus candidates are dropped once there are more than twice as many as wanted.
constexpr std::size_t candidate_room(std::size_t wanted) { return 2 * wanted + kClassesPerBlock + kGroupClasses; }

// Queries that scan the classes together: enough to amortise loading the classes, few enough to divide
// a small batch among threads.
constexpr std::size_t kQueriesPerChunk = 128;

// Implemented by each SIMD level. Queries are rows of n_bytes words, each a byte of the code repeated four times.
struct SearchKernels {
    // best[i] holds the smallest key of query i so far (all ones at first), and is lowered.
    void (*nearest)(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                    std::uint64_t* best);
    // scores[i * n_classes + c] = n_bits - 2 * distance of query i and class c, with its handicap.
    void (*scores)(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries, std::int32_t n_bits,
                   std::int32_t* scores);
    // Fills empty lists of candidates with the `wanted` nearest classes, ordered by index.
    void (*collect)(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                    Candidates* candidates);
    // scores[i] = inner product of the weights of candidate i and the real-valued code: `activations`
    // are activation_stride(n_bytes) bytes, with zeros past the last bit.
    void (*rescore)(const ClassGroups& classes, const Candidates& candidates, const std::int8_t* activations,
                    std::int32_t* scores);
    // Index of the candidate with the largest score; ties go to the nearest, then to the first.
    std::size_t (*best_scored)(const Candidates& candidates, const std::int32_t* scores);
};

// Interleaves packed rows for a scan: rows order[0], order[1], ... (0, 1, ... without an order), with the last one
// repeated up to a whole group.
void lay_out(const std::uint8_t* rows, std::size_t n_bytes, const std::uint32_t* order, std::size_t n,
             std::uint8_t* bytes);

// Output arrays of a search, with k classes per code.
struct Found {
    std::int64_t* indices;
    std::int32_t* distances;
    std::int32_t* scores = nullptr;  // only if classes are rescored

    Found from(std::size_t place) const {
        return {indices + place, distances + place, scores == nullptr ? nullptr : scores + place};
    }
};

// A search for the k best of the n_candidates nearest classes; k <= n_candidates <= n_classes.
struct Rescoring {
    std::size_t n_candidates;
    std::size_t k;
};

// Bytes per row of activations: a multiple of the vector size.
constexpr std::size_t activation_stride(std::size_t n_bytes) { return (n_bytes * 8 + 63) / 64 * 64; }

// Searches rank a class c by w_c.b + e_c, where e_c is its bias rounded to an even integer: a class is nearer the
// smaller its distance less e_c / 2 is. Distances in results are Hamming distances. Without a bias, e_c is 0.
class HammingIndex {
public:
    // Weights are packed rows of n_bytes; n_classes in [1, 2^31), n_bytes in [1, kMaxBytes]. bias: n_classes numbers
    // from -kMaxBias to kMaxBias, or null.
    HammingIndex(const std::uint8_t* weights, std::size_t n_classes, std::size_t n_bytes, const float* bias = nullptr);
    // The same, but searches visit only the n_probe nearest of n_centres clusters of classes: see ClassIndex.
    HammingIndex(const std::uint8_t* weights, std::size_t n_classes, std::size_t n_bytes, const std::uint8_t* centres,
                 std::size_t n_centres, const std::int64_t* clusters, std::size_t n_probe, const float* bias = nullptr);
    ~HammingIndex();

    // The nearest class of each code, n packed rows of n_bytes(). Ties go to the lowest class index.
    void nearest(const std::uint8_t* codes, std::size_t n, Found found, int n_threads) const;
    // The k nearest, nearest first, ties by class index; k in [1, n_classes()].
    void top_k(const std::uint8_t* codes, std::size_t n, std::size_t k, Found found, int n_threads) const;

    // Scores w_c.b + e_c of codes and weights of n_bits: n rows of n_classes().
    void scores(const std::uint8_t* codes, std::size_t n, std::size_t n_bits, std::int32_t* scores,
                int n_threads) const;

    // For each code, the best of the scores of the classes that are not on its list of m classes, without repetition,
    // and how many of these are 0, 2, 4, ... below it; the last of `width` numbers counts all that are lower.
    void counts(const std::uint8_t* codes, std::size_t n, std::size_t n_bits, const std::int64_t* lists, std::size_t m,
                std::size_t width, std::int32_t* best, double* counts, int n_threads) const;

    // The best of the nearest classes by inner product with the real-valued code plus bias, both in steps of 1/127,
    // ordered by (score descending, nearer, class index). Activations are n rows of activation_stride(n_bytes()) bytes,
    // zeros past the last bit. Runs on the calling thread.
    void rescored(const std::uint8_t* codes, const std::int8_t* activations, std::size_t n, Rescoring rescoring,
                  Found found) const;

    std::size_t n_classes() const { return n_classes_; }
    std::size_t n_bytes() const { return n_bytes_; }

    static constexpr std::size_t kMaxBytes = 125000;  // 1,000,000 bits; a distance has 20 bits in a key
    static constexpr float kMaxBias = 1 << 20;        // like the largest score; 127 times as much fits 32 bits

private:
    void set_bias(const float* bias);
    void write_key(std::uint64_t key, std::size_t place, Found found) const;
    void prefetch_rows(const Candidates& candidates) const;
    void repeat_bytes(const std::uint8_t* codes, std::size_t n, std::uint32_t* queries) const;
    ClassGroups groups() const;
    // Calls visit(start, rows, queries) with chunks of n codes, in parallel.
    template <class Visit>
    void by_chunks(const std::uint8_t* codes, std::size_t n, int n_threads, Visit visit) const;
    // Calls visit(row, candidates) with the `wanted` nearest classes of n codes.
    template <class Visit>
    void visit_nearest(const std::uint8_t* codes, std::size_t n, std::size_t wanted, Visit visit) const;

    const SearchKernels& kernels_;
    std::size_t n_classes_;
    std::size_t n_bytes_;
    std::size_t n_groups_;
    AlignedArray<std::uint8_t> bytes_;
    AlignedArray<std::uint64_t> rows_;
    Handicaps handicaps_;
    std::int32_t largest_even_ = 0;     // the largest e_c, whose class has no handicap
    std::vector<std::int32_t> biases_;  // in steps of 1/127; empty without a bias
    std::unique_ptr<ClassIndex> clusters_;
};

}  // namespace bitclass
