// Class sums against a plain loop that adds in the same order, on arrays of the exact size.
#include "../training.hpp"
#include "check.hpp"

namespace bitclass::tests {
namespace {

void check(std::size_t n, std::size_t n_classes, std::size_t n_features, int n_threads) {
    Random random(static_cast<unsigned>(n * 1009 + n_classes + n_features));
    std::vector<std::intptr_t> labels(n);
    for (auto& label : labels) label = random.integer(0, static_cast<int>(n_classes) - 1);
    std::vector<double> row_weights(n);
    for (auto& weight : row_weights) weight = 0.5 * random.integer(0, 9);
    std::vector<float> x(n * n_features);
    for (float& value : x) value = random.real();
    std::vector<double> expected(n_classes * n_features, 0.25);
    auto found = expected;
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n_features; ++j) {
            expected[static_cast<std::size_t>(labels[i]) * n_features + j] +=
                row_weights[i] * static_cast<double>(x[i * n_features + j]);
        }
    }
    class_sums(x.data(), n, n_features, labels.data(), row_weights.data(), found.data(), n_classes, n_threads);
    CHECK(found == expected);
}

}  // namespace

void test_class_sums() {
    for (const std::size_t n : {0, 1, 40, 3000}) {
        for (const std::size_t n_classes : {1, 2, 70}) check(n, n_classes, 37, 2);
    }
    check(2000, 9, 600, 3);
}

}  // namespace bitclass::tests
