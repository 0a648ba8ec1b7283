#include "search.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "class_index.hpp"
#include "dispatch.hpp"
#include "pool.hpp"

namespace bitclass {
namespace {

// Queries that scan the same classes together while these are in the cache.
constexpr std::size_t kQueriesPerPass = 32;
// Numbers in lists of candidates that a thread keeps: 1 MB.
constexpr std::size_t kMaxKept = std::size_t{1} << 18;

}  // namespace

void lay_out(const std::uint8_t* rows, std::size_t n_bytes, const std::uint32_t* order, std::size_t n,
             std::uint8_t* bytes) {
    for (std::size_t slot = 0; slot < chunks_of(n, kGroupClasses) * kGroupClasses; ++slot) {
        const std::size_t place = std::min(slot, n - 1);
        const std::uint8_t* const row = rows + (order == nullptr ? place : order[place]) * n_bytes;
        std::uint8_t* const group = bytes + slot / kGroupClasses * kGroupClasses * n_bytes;
        for (std::size_t b = 0; b < n_bytes; ++b) group[b * kGroupClasses + slot % kGroupClasses] = row[b];
    }
}

void Handicaps::narrow() {
    largest = *std::max_element(of_lane.data(), of_lane.data() + of_lane.size());
    if (largest > kMaxInBytes) return;
    bytes = AlignedArray<std::uint8_t>(of_lane.size());
    for (std::size_t i = 0; i < of_lane.size(); ++i) bytes[i] = static_cast<std::uint8_t>(of_lane[i]);
}

void Handicaps::add_to(ClassGroups& groups, std::size_t first) const {
    if (of_lane.size() == 0) return;
    groups.handicaps = of_lane.data() + first;
    groups.byte_handicaps = bytes.size() == 0 ? nullptr : bytes.data() + first;
    groups.max_handicap = largest;
}

HammingIndex::HammingIndex(const std::uint8_t* weights, std::size_t n_classes, std::size_t n_bytes, const float* bias)
    : kernels_(kernels().search), n_classes_(n_classes), n_bytes_(n_bytes) {
    if (n_classes == 0 || n_classes >= (std::size_t{1} << 31)) {
        throw std::invalid_argument("weights: expected 1 to 2147483647 classes, found " + std::to_string(n_classes));
    }
    if (n_bytes == 0 || n_bytes > kMaxBytes) {
        throw std::invalid_argument("weights: expected 1 to " + std::to_string(kMaxBytes) + " bytes per class, found " +
                                    std::to_string(n_bytes));
    }
    n_groups_ = chunks_of(n_classes, kGroupClasses);
    bytes_ = AlignedArray<std::uint8_t>(n_groups_ * kGroupClasses * n_bytes);
    lay_out(weights, n_bytes, nullptr, n_classes, bytes_.data());
    const std::size_t row_length = chunks_of(n_bytes, 8);
    rows_ = AlignedArray<std::uint64_t>(n_classes * row_length);
    for (std::size_t c = 0; c < n_classes; ++c) std::memcpy(&rows_[c * row_length], weights + c * n_bytes, n_bytes);
    if (bias != nullptr) set_bias(bias);
}

void HammingIndex::set_bias(const float* bias) {
    std::vector<std::int32_t> halves;  // of the even integers next to the biases
    for (std::size_t c = 0; c < n_classes_; ++c) {
        if (!(std::fabs(bias[c]) <= kMaxBias)) {
            throw std::invalid_argument("bias: expected numbers from -1048576 to 1048576, found " +
                                        std::to_string(bias[c]) + " for class " + std::to_string(c));
        }
        halves.push_back(static_cast<std::int32_t>(std::nearbyint(double{bias[c]} / 2.0)));
        biases_.push_back(static_cast<std::int32_t>(std::nearbyint(double{bias[c]} * 127.0)));
    }
    const std::int32_t most = *std::max_element(halves.begin(), halves.end());
    largest_even_ = 2 * most;
    handicaps_ = Handicaps(n_groups_ * kGroupClasses);
    for (std::size_t slot = 0; slot < n_groups_ * kGroupClasses; ++slot) {
        handicaps_.of_lane[slot] = static_cast<std::uint32_t>(most - halves[std::min(slot, n_classes_ - 1)]);
    }
    handicaps_.narrow();
    if (handicaps_.largest == 0) handicaps_ = Handicaps();
}

HammingIndex::HammingIndex(const std::uint8_t* weights, std::size_t n_classes, std::size_t n_bytes,
                           const std::uint8_t* centres, std::size_t n_centres, const std::int64_t* clusters,
                           std::size_t n_probe, const float* bias)
    : HammingIndex(weights, n_classes, n_bytes, bias) {
    clusters_ = std::make_unique<ClassIndex>(kernels_, weights, n_classes, n_bytes, centres, n_centres, clusters,
                                             n_probe, handicaps_);
}

HammingIndex::~HammingIndex() = default;

void HammingIndex::nearest(const std::uint8_t* codes, std::size_t n, Found found, int n_threads) const {
    if (clusters_ != nullptr) return top_k(codes, n, 1, found, n_threads);
    by_chunks(codes, n, n_threads, [&](std::size_t start, std::size_t rows, const std::uint32_t* queries) {
        std::uint64_t best[kQueriesPerChunk];
        std::fill_n(best, rows, ~std::uint64_t{0});
        kernels_.nearest(groups(), queries, rows, best);
        for (std::size_t i = 0; i < rows; ++i) write_key(best[i], start + i, found);
    });
}

template <class Visit>
void HammingIndex::by_chunks(const std::uint8_t* codes, std::size_t n, int n_threads, Visit visit) const {
    parallel_for(chunks_of(n, kQueriesPerChunk), n_threads, [&](std::size_t chunk) {
        const std::size_t start = chunk * kQueriesPerChunk;
        const std::size_t rows = std::min(kQueriesPerChunk, n - start);
        std::vector<std::uint32_t> queries(rows * n_bytes_);
        repeat_bytes(codes + start * n_bytes_, rows, queries.data());
        visit(start, rows, queries.data());
    });
}

template <class Visit>
void HammingIndex::visit_nearest(const std::uint8_t* codes, std::size_t n, std::size_t wanted, Visit visit) const {
    const std::size_t room = candidate_room(wanted);
    const std::size_t needed = 2 * std::min(n, kQueriesPerPass) * room;
    // Short lists are kept per thread, so that small batches do not wait for new pages.
    thread_local AlignedArray<std::uint32_t> kept;
    AlignedArray<std::uint32_t> own;
    AlignedArray<std::uint32_t>& lists = needed <= kMaxKept ? kept : own;
    if (lists.size() < needed) lists = AlignedArray<std::uint32_t>(needed);
    thread_local std::vector<std::uint32_t> queries;
    queries.resize(kQueriesPerPass * n_bytes_);
    for (std::size_t start = 0; start < n; start += kQueriesPerPass) {
        const std::size_t rows = std::min(kQueriesPerPass, n - start);
        repeat_bytes(codes + start * n_bytes_, rows, queries.data());
        Candidates candidates[kQueriesPerPass];
        for (std::size_t i = 0; i < rows; ++i) {
            std::uint32_t* const list = lists.data() + 2 * i * room;
            candidates[i] = {list, list + room, 0, wanted, ~std::uint32_t{0}};
        }
        if (clusters_ == nullptr) {
            kernels_.collect(groups(), queries.data(), rows, candidates);
        } else {
            for (std::size_t i = 0; i < rows; ++i) clusters_->collect(queries.data() + i * n_bytes_, candidates[i]);
        }
        for (std::size_t i = 0; i < rows; ++i) {
            if (i + 1 < rows) prefetch_rows(candidates[i + 1]);
            visit(start + i, candidates[i]);
        }
    }
}

void HammingIndex::top_k(const std::uint8_t* codes, std::size_t n, std::size_t k, Found found, int n_threads) const {
    constexpr std::size_t kRowsPerChunk = 16;
    parallel_for(chunks_of(n, kRowsPerChunk), n_threads, [&](std::size_t chunk) {
        const std::size_t first = chunk * kRowsPerChunk;
        std::vector<std::uint64_t> keys(k);  // distance << 32 | class
        visit_nearest(codes + first * n_bytes_, std::min(kRowsPerChunk, n - first), k,
                      [&](std::size_t i, const Candidates& list) {
                          for (std::size_t j = 0; j < k; ++j) {
                              keys[j] = std::uint64_t{list.distances[j]} << 32 | list.classes[j];
                          }
                          std::sort(keys.begin(), keys.end());
                          for (std::size_t j = 0; j < k; ++j) write_key(keys[j], (first + i) * k + j, found);
                      });
    });
}

void HammingIndex::rescored(const std::uint8_t* codes, const std::int8_t* activations, std::size_t n,
                            Rescoring rescoring, Found found) const {
    const std::size_t stride = activation_stride(n_bytes_);
    const std::size_t k = rescoring.k;
    std::vector<std::int32_t> products(rescoring.n_candidates);
    std::vector<std::uint32_t> order(rescoring.n_candidates);
    visit_nearest(codes, n, rescoring.n_candidates, [&](std::size_t i, const Candidates& list) {
        kernels_.rescore(groups(), list, activations + i * stride, products.data());
        if (!biases_.empty()) {
            for (std::size_t j = 0; j < list.size; ++j) products[j] += biases_[list.classes[j]];
        }
        // Candidates are ordered by class, which breaks ties.
        const auto better = [&](std::uint32_t a, std::uint32_t b) {
            if (products[a] != products[b]) return products[a] > products[b];
            if (list.distances[a] != list.distances[b]) return list.distances[a] < list.distances[b];
            return a < b;
        };
        if (k == 1) {
            order[0] = static_cast<std::uint32_t>(kernels_.best_scored(list, products.data()));
        } else {
            std::iota(order.begin(), order.end(), 0u);
            std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(), better);
        }
        for (std::size_t j = 0; j < k; ++j) {
            write_key(std::uint64_t{list.distances[order[j]]} << 32 | list.classes[order[j]], i * k + j, found);
            found.scores[i * k + j] = products[order[j]];
        }
    });
}

void HammingIndex::scores(const std::uint8_t* codes, std::size_t n, std::size_t n_bits, std::int32_t* scores,
                          int n_threads) const {
    by_chunks(codes, n, n_threads, [&](std::size_t start, std::size_t rows, const std::uint32_t* queries) {
        const std::int32_t most = static_cast<std::int32_t>(n_bits) + largest_even_;
        kernels_.scores(groups(), queries, rows, most, scores + start * n_classes_);
    });
}

void HammingIndex::counts(const std::uint8_t* codes, std::size_t n, std::size_t n_bits, const std::int64_t* lists,
                          std::size_t m, std::size_t width, std::int32_t* best, double* counts, int n_threads) const {
    constexpr std::size_t kTables = 4;  // neighbours seldom wait for each other's counts
    const std::int32_t most = static_cast<std::int32_t>(n_bits) + largest_even_;
    by_chunks(codes, n, n_threads, [&](std::size_t start, std::size_t rows, const std::uint32_t* queries) {
        std::vector<std::int32_t> scores(n_classes_);
        std::vector<std::uint32_t> tables(kTables * width);
        for (std::size_t i = 0; i < rows; ++i) {
            const std::size_t row = start + i;
            kernels_.scores(groups(), queries + i * n_bytes_, 1, most, scores.data());
            for (std::size_t j = 0; j < m; ++j) {
                scores[static_cast<std::size_t>(lists[row * m + j])] = std::numeric_limits<std::int32_t>::min();
            }
            const std::int32_t highest = *std::max_element(scores.begin(), scores.end());
            best[row] = highest;
            std::fill(tables.begin(), tables.end(), 0u);
            for (std::size_t c = 0; c < n_classes_; ++c) {
                const std::uint32_t below = static_cast<std::uint32_t>(highest) - static_cast<std::uint32_t>(scores[c]);
                ++tables[c % kTables * width + std::min<std::size_t>(below / 2, width - 1)];
            }
            double* const found = counts + row * width;
            for (std::size_t bin = 0; bin < width; ++bin) {
                found[bin] = 0.0;
                for (std::size_t table = 0; table < kTables; ++table) found[bin] += tables[table * width + bin];
            }
            found[width - 1] -= static_cast<double>(m);
        }
    });
}

void HammingIndex::prefetch_rows(const Candidates& candidates) const {
    const std::size_t row_length = chunks_of(n_bytes_, 8);
    for (std::size_t i = 0; i < candidates.size; ++i) {
        __builtin_prefetch(rows_.data() + candidates.classes[i] * row_length);
    }
}

void HammingIndex::repeat_bytes(const std::uint8_t* codes, std::size_t n, std::uint32_t* queries) const {
    for (std::size_t i = 0; i < n * n_bytes_; ++i) queries[i] = codes[i] * 0x01010101u;
}

// A key is the distance with its handicap << 32 | class.
void HammingIndex::write_key(std::uint64_t key, std::size_t place, Found found) const {
    const std::uint64_t c = key & 0xffffffffu;
    const std::uint32_t handicap = handicaps_.of_lane.size() == 0 ? 0 : handicaps_.of_lane[c];
    found.indices[place] = static_cast<std::int64_t>(c);
    found.distances[place] = static_cast<std::int32_t>((key >> 32) - handicap);
}

ClassGroups HammingIndex::groups() const {
    ClassGroups groups{bytes_.data(), n_groups_, n_bytes_, n_classes_, rows_.data()};
    handicaps_.add_to(groups);
    return groups;
}

}  // namespace bitclass
