#include <cmath>

#include "../sparse.hpp"
#include "check.hpp"

namespace bitclass::tests {
namespace {

// Rows with few or no entries; every second column is kept.
struct Problem {
    std::size_t n, d, k, r;
    std::vector<std::int64_t> starts{0};
    std::vector<std::int32_t> columns, places;
    std::vector<float> values, factors, table, steps, gradients;
    std::vector<std::int8_t> bytes;

    Problem(std::size_t n, std::size_t d, std::size_t r) : n(n), d(d), k((d + 1) / 2), r(r) {
        Random random(static_cast<unsigned>(n * 1000003 + d * 1009 + r));
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < d; ++j) {
                if (i % 7 == 3 || random.integer(0, 3) != 0) continue;
                columns.push_back(static_cast<std::int32_t>(j));
                values.push_back(random.real());
            }
            starts.push_back(static_cast<std::int64_t>(columns.size()));
        }
        for (std::size_t j = 0; j < d; ++j) places.push_back(j % 2 == 0 ? static_cast<std::int32_t>(j / 2) : -1);
        for (std::size_t j = 0; j < k; ++j) factors.push_back(0.5f + std::fabs(random.real()));
        for (std::size_t j = 0; j < d * r; ++j) {
            table.push_back(random.real());
            bytes.push_back(static_cast<std::int8_t>(random.integer(-127, 127)));
        }
        for (std::size_t b = 0; b < r; ++b) steps.push_back(0.01f + std::fabs(random.real()));
        for (std::size_t j = 0; j < n * r; ++j) gradients.push_back(random.real());
    }
    SparseRows rows() const { return {starts.data(), columns.data(), values.data(), n}; }
};

void check_near(float found, double expected, double size) {
    CHECK(std::fabs(found - expected) <= 1e-5 * (1.0 + size));
}

void check_scores(const Problem& p, bool in_bytes, bool kept) {
    const SparseRows rows = p.rows();
    const SparseProjection projection{kept ? p.places.data() : nullptr,
                                      kept ? p.factors.data() : nullptr,
                                      in_bytes ? nullptr : p.table.data(),
                                      p.bytes.data(),
                                      in_bytes ? p.steps.data() : nullptr,
                                      nullptr,
                                      p.r};
    std::vector<float> scores(rows.n * p.r, NAN), again(rows.n * p.r, NAN);
    sparse_scores(rows, projection, scores.data(), 1);
    sparse_scores(rows, projection, again.data(), 3);
    CHECK(scores == again);
    for (std::size_t i = 0; i < rows.n; ++i) {
        for (std::size_t b = 0; b < p.r; ++b) {
            double sum = 0.0, size = 0.0;
            for (std::int64_t e = p.starts[i]; e < p.starts[i + 1]; ++e) {
                const std::int32_t place = kept ? p.places[p.columns[e]] : p.columns[e];
                if (place < 0) continue;
                const double factor = kept ? p.factors[place] : 1.0f;
                const std::size_t at = static_cast<std::size_t>(place) * p.r + b;
                const double term = factor * p.values[e] * (in_bytes ? static_cast<float>(p.bytes[at]) : p.table[at]);
                sum += term;
                size += std::fabs(term);
            }
            const double step = in_bytes ? p.steps[b] : 1.0f;
            check_near(scores[i * p.r + b], sum * step, size * step);
        }
    }
}

void check_steps(const Problem& p) {
    const SparseRows rows = p.rows();
    std::vector<float> projection = p.table, squares(p.d, 0.0f);
    std::vector<std::int32_t> counts(p.d, 0);
    std::vector<float> again = projection, squares_again = squares;
    std::vector<std::int32_t> counts_again = counts;
    std::vector<double> moved(p.table.begin(), p.table.end()), means(p.d, 0.0);
    for (int step = 1; step <= 3; ++step) {
        sparse_step(rows, p.gradients.data(), 0.1f, projection.data(), squares.data(), counts.data(), p.d, p.r, 1);
        sparse_step(rows, p.gradients.data(), 0.1f, again.data(), squares_again.data(), counts_again.data(), p.d, p.r,
                    3);
        for (std::size_t j = 0; j < p.d; ++j) {
            std::vector<double> gradient(p.r, 0.0);
            bool occurs = false;
            for (std::size_t i = 0; i < p.n; ++i) {
                for (std::int64_t e = p.starts[i]; e < p.starts[i + 1]; ++e) {
                    if (static_cast<std::size_t>(p.columns[e]) != j) continue;
                    occurs = true;
                    for (std::size_t b = 0; b < p.r; ++b) gradient[b] += p.values[e] * p.gradients[i * p.r + b];
                }
            }
            if (!occurs) continue;
            double square = 0.0;
            for (const double g : gradient) square += g * g / static_cast<double>(p.r);
            means[j] = 0.99 * means[j] + 0.01 * square;
            const double root = std::sqrt(means[j] / (1.0 - std::pow(0.99, step)));
            for (std::size_t b = 0; b < p.r; ++b) moved[j * p.r + b] -= 0.1 * gradient[b] / root;
        }
    }
    CHECK(projection == again && squares == squares_again && counts == counts_again);
    for (std::size_t j = 0; j < p.d * p.r; ++j) CHECK(std::fabs(projection[j] - moved[j]) <= 1e-3);
    for (std::size_t j = 0; j < p.d; ++j) CHECK(counts[j] == (means[j] > 0.0 ? 3 : 0));
}

}  // namespace

void test_sparse() {
    for (const std::size_t r : {1, 7, 16, 33, 64, 150}) {
        for (const std::size_t n : {1, 5, 70}) {
            const Problem p(n, n == 5 ? 3000 : 40, r);
            for (const bool kept : {false, true}) {
                for (const bool in_bytes : {false, true}) check_scores(p, in_bytes, kept);
            }
            if (p.d < 100) check_steps(p);
        }
    }
}

}  // namespace bitclass::tests
