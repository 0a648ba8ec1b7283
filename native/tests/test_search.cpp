#include <algorithm>
#include <cmath>
#include <thread>

#include "../search.hpp"
#include "check.hpp"

namespace bitclass::tests {
namespace {

struct Key {
    int rank;  // the distance less half of the even bias
    std::size_t c;
    int distance;
};

// All classes for one code, nearest first; without a bias if its pointer is null.
std::vector<Key> sorted_keys(const std::uint8_t* code, const std::vector<std::uint8_t>& weights, std::size_t n_bytes,
                             const float* bias = nullptr) {
    std::vector<Key> keys;
    for (std::size_t c = 0; c * n_bytes < weights.size(); ++c) {
        int distance = 0;
        for (std::size_t b = 0; b < n_bytes; ++b) {
            for (unsigned x = code[b] ^ weights[c * n_bytes + b]; x != 0; x &= x - 1) ++distance;
        }
        const int half = bias == nullptr ? 0 : static_cast<int>(std::nearbyint(bias[c] / 2));
        keys.push_back({distance - half, c, distance});
    }
    std::sort(keys.begin(), keys.end(),
              [](const Key& a, const Key& b) { return a.rank != b.rank ? a.rank < b.rank : a.c < b.c; });
    return keys;
}

// With biases up to max_bias in magnitude, none if it is 0.
void check_search(std::size_t n, std::size_t n_classes, std::size_t n_bytes, int most, int n_threads,
                  int max_bias = 0) {
    Random random(static_cast<unsigned>(n * 1000003 + n_classes * 1009 + n_bytes));
    const auto weights = random.bytes(n_classes * n_bytes, most);
    const auto codes = random.bytes(n * n_bytes, most);
    // Visiting all clusters must find what the scan finds; the last cluster is empty.
    const std::size_t n_centres = 8;
    const auto centres = random.bytes(n_centres * n_bytes, most);
    std::vector<std::int64_t> clusters(n_classes);
    for (auto& cluster : clusters) cluster = random.integer(0, n_centres - 2);
    std::vector<float> biases(n_classes);
    for (auto& bias : biases) bias = static_cast<float>(random.integer(-max_bias, max_bias));
    const float* const bias = max_bias == 0 ? nullptr : biases.data();
    const HammingIndex scan(weights.data(), n_classes, n_bytes, bias);
    const HammingIndex clustered(weights.data(), n_classes, n_bytes, centres.data(), n_centres, clusters.data(),
                                 n_centres, bias);
    for (const HammingIndex* index : {&scan, &clustered}) {
        std::vector<std::int64_t> indices(n);
        std::vector<std::int32_t> distances(n);
        index->nearest(codes.data(), n, {indices.data(), distances.data()}, n_threads);
        for (const std::size_t k : {std::size_t{1}, std::min<std::size_t>(5, n_classes), n_classes}) {
            std::vector<std::int64_t> top_indices(n * k);
            std::vector<std::int32_t> top_distances(n * k);
            index->top_k(codes.data(), n, k, {top_indices.data(), top_distances.data()}, n_threads);
            for (std::size_t i = 0; i < n; ++i) {
                const auto keys = sorted_keys(codes.data() + i * n_bytes, weights, n_bytes, bias);
                CHECK(static_cast<std::size_t>(indices[i]) == keys[0].c);
                CHECK(distances[i] == keys[0].distance);
                for (std::size_t j = 0; j < k; ++j) {
                    CHECK(static_cast<std::size_t>(top_indices[i * k + j]) == keys[j].c);
                    CHECK(top_distances[i * k + j] == keys[j].distance);
                }
            }
        }
    }
}

// Scores of all classes, and of the nearest by real-valued codes, against sums bit by bit.
void check_scores(std::size_t n, std::size_t n_classes, std::size_t n_bytes, std::size_t n_candidates) {
    Random random(static_cast<unsigned>(n * 1000003 + n_classes * 1009 + n_bytes));
    const auto weights = random.bytes(n_classes * n_bytes);
    const auto codes = random.bytes(n * n_bytes);
    const std::size_t stride = activation_stride(n_bytes), n_bits = 8 * n_bytes;
    std::vector<std::int8_t> active(n * stride);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < n_bits; ++k)
            active[i * stride + k] = static_cast<std::int8_t>(random.integer(-127, 127));
    }
    const HammingIndex index(weights.data(), n_classes, n_bytes);
    std::vector<std::int32_t> scores(n * n_classes), products(n), distances(n);
    std::vector<std::int64_t> indices(n);
    index.scores(codes.data(), n, n_bits, scores.data(), 2);
    index.rescored(codes.data(), active.data(), n, {n_candidates, 1},
                   {indices.data(), distances.data(), products.data()});
    for (std::size_t i = 0; i < n; ++i) {
        const auto keys = sorted_keys(codes.data() + i * n_bytes, weights, n_bytes);
        std::int64_t best = -1, best_distance = 0;
        std::int32_t best_product = 0;
        for (std::size_t j = 0; j < n_classes; ++j) {
            const std::size_t c = keys[j].c;
            const std::int32_t distance = keys[j].distance;
            CHECK(scores[i * n_classes + c] == static_cast<std::int32_t>(n_bits) - 2 * distance);
            std::int32_t product = 0;
            for (std::size_t k = 0; k < n_bits; ++k) {
                const bool set = weights[c * n_bytes + k / 8] >> k % 8 & 1;
                product += set ? active[i * stride + k] : -active[i * stride + k];
            }
            if (j < n_candidates && (best < 0 || product > best_product)) {
                best = static_cast<std::int64_t>(c);
                best_product = product;
                best_distance = distance;
            }
        }
        CHECK(indices[i] == best);
        CHECK(products[i] == best_product);
        CHECK(distances[i] == best_distance);
    }
}

void check_largest_distance(std::size_t n_bytes) {
    const std::vector<std::uint8_t> weights(20 * n_bytes, 0), codes(5 * n_bytes, 0xff);
    const HammingIndex index(weights.data(), 20, n_bytes);
    std::vector<std::int64_t> indices(5);
    std::vector<std::int32_t> distances(5);
    index.nearest(codes.data(), 5, {indices.data(), distances.data()}, 1);
    for (const std::int32_t distance : distances) CHECK(static_cast<std::size_t>(distance) == 8 * n_bytes);
    for (const std::int64_t found : indices) CHECK(found == 0);
}

}  // namespace

void test_search() {
    for (const std::size_t n_bytes : {1, 32, 124, 132, 1000}) check_largest_distance(n_bytes);
    for (const std::size_t n_bytes : {1, 3, 4, 8, 12, 16, 17, 24, 31, 32, 33, 64, 130, 260}) {
        for (const std::size_t n_classes : {1, 2, 15, 16, 17, 100, 257}) {
            for (const std::size_t n : {0, 1, 3, 9}) check_search(n, n_classes, n_bytes, n_classes % 2 ? 255 : 1, 1);
            for (const int max_bias : {3, 127, 300, 100000}) check_search(5, n_classes, n_bytes, 255, 1, max_bias);
        }
    }
    for (const std::size_t n_bytes : {1, 7, 16, 31, 32, 33, 300}) {
        check_scores(6, 5, n_bytes, 5);
        check_scores(5, 200, n_bytes, 16);
        check_scores(5, 5000, n_bytes, 70);
    }
    check_search(300, 70, 16, 3, 3);
    check_search(40, 9000, 32, 255, 3, 120);
    check_search(5, 140000, 1, 255, 2);  // more classes than a block of a scan
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) callers.emplace_back([] { check_search(400, 40, 16, 255, 3); });
    for (auto& caller : callers) caller.join();
}

}  // namespace bitclass::tests
