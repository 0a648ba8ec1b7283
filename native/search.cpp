#include "search.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "dispatch.hpp"
#include "pool.hpp"

namespace bitclass {
namespace {

constexpr Levels<SearchKernels> kLevels = BITCLASS_LEVELS(search_kernels);

// Queries that pass together over the classes: enough to make up for fetching the classes, few
// enough to share a small batch between threads.
constexpr std::size_t kQueriesAChunk = 128;

// Up to here the candidates are kept in order; a longer list is cleared out when it is full.
constexpr std::size_t kShortList = 32;

// Drops all but the k best candidates and lowers the threshold to the worst of them.
void keep_best(Candidates& candidates) {
    if (candidates.size <= candidates.k) return;
    std::uint64_t* const kth = candidates.keys + (candidates.k - 1);
    std::nth_element(candidates.keys, kth, candidates.keys + candidates.size);
    candidates.size = candidates.k;
    candidates.threshold = static_cast<std::uint32_t>(*kth >> 32);
}

}  // namespace

void offer(Candidates& candidates, std::uint64_t key) {
    if (candidates.k > kShortList) {
        if (candidates.size == candidates.capacity) keep_best(candidates);
        candidates.keys[candidates.size++] = key;
        return;
    }
    std::uint64_t* const keys = candidates.keys;
    if (candidates.size == candidates.k) {
        if (key > keys[candidates.k - 1]) return;
        --candidates.size;  // the worst makes room
    }
    std::size_t at = candidates.size++;
    for (; at > 0 && keys[at - 1] > key; --at) keys[at] = keys[at - 1];
    keys[at] = key;
    if (candidates.size == candidates.k) {
        candidates.threshold = static_cast<std::uint32_t>(keys[candidates.k - 1] >> 32);
    }
}

HammingIndex::HammingIndex(const std::uint8_t* weights, std::size_t n_classes, std::size_t n_bytes)
    : kernels_(kLevels.current()), n_classes_(n_classes), n_bytes_(n_bytes), n_words_((n_bytes + 3) / 4) {
    if (n_classes == 0 || n_classes >= (std::size_t{1} << 31)) {
        throw std::invalid_argument("weights: expected 1 to 2147483647 classes, found " + std::to_string(n_classes));
    }
    if (n_bytes == 0 || n_bytes > kMostBytes) {
        throw std::invalid_argument("weights: expected 1 to " + std::to_string(kMostBytes) + " bytes a class, found " +
                                    std::to_string(n_bytes));
    }
    const std::size_t width = kernels_.width;
    n_groups_ = chunks_of(n_classes, width);
    words_ = AlignedArray<std::uint32_t>(n_groups_ * n_words_ * width);
    std::vector<std::uint32_t> row(n_words_);
    for (std::size_t slot = 0; slot < n_groups_ * width; ++slot) {
        words_of(weights + std::min(slot, n_classes - 1) * n_bytes, 1, row.data());
        std::uint32_t* group = words_.data() + slot / width * n_words_ * width;
        for (std::size_t word = 0; word < n_words_; ++word) group[word * width + slot % width] = row[word];
    }
}

void HammingIndex::nearest(const std::uint8_t* codes, std::size_t n, std::int64_t* indices, std::int32_t* distances,
                           int n_threads) const {
    parallel_for(chunks_of(n, kQueriesAChunk), n_threads, [&](std::size_t chunk) {
        const std::size_t start = chunk * kQueriesAChunk;
        const std::size_t rows = std::min(kQueriesAChunk, n - start);
        std::vector<std::uint32_t> queries(rows * n_words_);
        words_of(codes + start * n_bytes_, rows, queries.data());
        std::uint64_t best[kQueriesAChunk];
        std::fill_n(best, rows, ~std::uint64_t{0});
        kernels_.nearest(groups(), queries.data(), rows, best);
        for (std::size_t i = 0; i < rows; ++i) {
            indices[start + i] = static_cast<std::int64_t>(best[i] & 0xffffffffu);
            distances[start + i] = static_cast<std::int32_t>(best[i] >> 32);
        }
    });
}

void HammingIndex::top_k(const std::uint8_t* codes, std::size_t n, std::size_t k, std::int64_t* indices,
                         std::int32_t* distances, int n_threads) const {
    // Room for as many candidates again makes each clearing out pay for itself.
    const std::size_t capacity = 2 * k;
    constexpr std::size_t kRowsAPass = 4;
    parallel_for(chunks_of(n, kRowsAPass), n_threads, [&](std::size_t chunk) {
        const std::size_t start = chunk * kRowsAPass;
        const std::size_t rows = std::min(kRowsAPass, n - start);
        std::vector<std::uint32_t> queries(rows * n_words_);
        words_of(codes + start * n_bytes_, rows, queries.data());
        std::vector<std::uint64_t> keys(rows * capacity);
        Candidates candidates[kRowsAPass];
        for (std::size_t i = 0; i < rows; ++i) {
            candidates[i] = {keys.data() + i * capacity, 0, capacity, k, ~std::uint32_t{0}};
        }
        kernels_.collect(groups(), queries.data(), rows, candidates);
        for (std::size_t i = 0; i < rows; ++i) {
            keep_best(candidates[i]);
            std::sort(candidates[i].keys, candidates[i].keys + k);
            for (std::size_t j = 0; j < k; ++j) {
                indices[(start + i) * k + j] = static_cast<std::int64_t>(candidates[i].keys[j] & 0xffffffffu);
                distances[(start + i) * k + j] = static_cast<std::int32_t>(candidates[i].keys[j] >> 32);
            }
        }
    });
}

void HammingIndex::scores(const std::uint8_t* codes, std::size_t n, std::size_t n_bits, std::int32_t* scores,
                          int n_threads) const {
    parallel_for(chunks_of(n, kQueriesAChunk), n_threads, [&](std::size_t chunk) {
        const std::size_t start = chunk * kQueriesAChunk;
        const std::size_t rows = std::min(kQueriesAChunk, n - start);
        std::vector<std::uint32_t> queries(rows * n_words_);
        words_of(codes + start * n_bytes_, rows, queries.data());
        kernels_.scores(groups(), queries.data(), rows, static_cast<std::int32_t>(n_bits),
                        scores + start * n_classes_);
    });
}

void HammingIndex::words_of(const std::uint8_t* codes, std::size_t n, std::uint32_t* words) const {
    for (std::size_t i = 0; i < n; ++i) {
        words[(i + 1) * n_words_ - 1] = 0;  // the last word may be filled in part
        std::memcpy(words + i * n_words_, codes + i * n_bytes_, n_bytes_);
    }
}

ClassGroups HammingIndex::groups() const { return {words_.data(), n_groups_, n_words_, n_classes_}; }

}  // namespace bitclass
