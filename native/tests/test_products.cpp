// Products and factorisations against plain loops, with odd sizes and every way to store a product.
#include <cmath>

#include "../linear_algebra.hpp"
#include "check.hpp"

namespace bitclass::tests {
namespace {

template <class Float>
std::vector<Float> random_values(std::size_t n, unsigned seed) {
    Random random(seed);
    std::vector<Float> values(n);
    for (Float& value : values) value = static_cast<Float>(random.real());
    return values;
}

template <class Float>
void check_product(std::size_t m, std::size_t n, std::size_t k, bool a_transposed, bool b_transposed, Store store) {
    const auto a = random_values<Float>(m * k, 1), b = random_values<Float>(k * n, 2);
    const std::size_t stride = n + 3;  // entries beyond the last column must stay
    const std::vector<Float> before(m * stride, Float{0.5});
    std::vector<Float> found[2];
    for (int i = 0; i < 2; ++i) {
        found[i] = before;
        multiply<Float>({a.data(), a_transposed ? m : k, a_transposed}, {b.data(), b_transposed ? k : n, b_transposed},
                        m, n, k, found[i].data(), stride, store, false, i == 0 ? 1 : 3);
    }
    CHECK(found[0] == found[1]);
    const double tolerance = sizeof(Float) == 4 ? 1e-4 : 1e-11;
    for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t j = 0; j < stride; ++j) {
            double sum = 0;
            for (std::size_t l = 0; l < k && j < n; ++l) {
                sum += double{a[a_transposed ? l * m + i : i * k + l]} * double{b[b_transposed ? j * k + l : l * n + j]};
            }
            const double kept = j >= n || store != Store::kSet ? 0.5 : 0.0;
            const double expected = kept + (store == Store::kSubtract ? -sum : sum);
            CHECK(std::abs(double{found[0][i * stride + j]} - expected) <= tolerance * (1.0 + static_cast<double>(k)));
        }
    }
}

template <class Float>
void check_factor(std::size_t d) {
    const auto x = random_values<Float>((d + 5) * d, 3);
    std::vector<double> gram(d * d);
    add_gram(x.data(), d + 5, d, gram.data(), 2);
    for (std::size_t i = 0; i < d; ++i) {
        gram[i * d + i] += 1.0;
        for (std::size_t j = 0; j < i; ++j) CHECK(gram[i * d + j] == gram[j * d + i]);
    }
    std::vector<Float> lower(gram.begin(), gram.end());
    CHECK(cholesky(lower.data(), d, 2));
    const double tolerance = (sizeof(Float) == 4 ? 1e-4 : 1e-11) * (1.0 + static_cast<double>(d));
    const auto b = random_values<Float>(7 * d, 4);
    for (const bool transposed : {false, true}) {
        auto solution = b;
        solve_triangular(lower.data(), d, solution.data(), 7, transposed, 2);
        for (std::size_t row = 0; row < 7; ++row) {
            for (std::size_t i = 0; i < d; ++i) {
                double sum = 0;
                for (std::size_t j = 0; j < d; ++j) {
                    sum += double{lower[transposed ? j * d + i : i * d + j]} * double{solution[row * d + j]};
                }
                CHECK(std::abs(sum - double{b[row * d + i]}) <= tolerance);
            }
        }
    }
    for (std::size_t i = 0; i < d; ++i) {
        for (std::size_t j = 0; j < d; ++j) {
            double sum = 0;
            for (std::size_t k = 0; k < d; ++k) sum += double{lower[i * d + k]} * double{lower[j * d + k]};
            CHECK(std::abs(sum - gram[i * d + j]) <= tolerance * (1.0 + std::abs(gram[i * d + j])));
        }
    }
    if (d == 0) return;
    gram[(d - 1) * d + d - 1] = -1.0;  // no longer positive
    lower.assign(gram.begin(), gram.end());
    CHECK(!cholesky(lower.data(), d, 2));
}

}  // namespace

void test_products() {
    for (const Store store : {Store::kSet, Store::kAdd, Store::kSubtract}) {
        for (const bool a_transposed : {false, true}) {
            for (const bool b_transposed : {false, true}) {
                check_product<float>(29, 37, 300, a_transposed, b_transposed, store);
                check_product<double>(13, 65, 17, a_transposed, b_transposed, store);
            }
        }
        check_product<float>(3, 1, 0, false, false, store);
        check_product<float>(500, 40, 9, true, false, store);
        check_product<float>(0, 4, 4, false, false, store);
    }
    for (const std::size_t d : {0, 1, 63, 65, 200}) {
        check_factor<float>(d);
        check_factor<double>(d);
    }
}

}  // namespace bitclass::tests
