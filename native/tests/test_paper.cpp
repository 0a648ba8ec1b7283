// The paper's kernels against plain loops that add in the same order, on arrays of the exact size.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "../paper/paper.hpp"
#include "check.hpp"

namespace bitclass::tests {
namespace {

struct Problem {
    Problem(std::size_t rows, std::size_t classes, std::size_t bits)
        : n(rows), n_classes(classes), n_bits(bits), n_bytes((bits + 7) / 8),
          random(static_cast<unsigned>(rows * 1000003 + classes * 1009 + bits)), codes(random.bytes(rows * n_bytes)),
          weights(random.bytes(classes * n_bytes)), y(rows), row_weights(rows) {
        clear_padding(codes);
        clear_padding(weights);
        for (auto& label : y) label = random.integer(0, static_cast<int>(n_classes) - 1);
        std::sort(y.begin(), y.end());
        for (auto& weight : row_weights) weight = random.integer(0, 2) == 0 ? 0.5 * random.integer(0, 9) : 1.0;
    }

    void clear_padding(std::vector<std::uint8_t>& packed) const {
        if (n_bits % 8 == 0) return;
        for (std::size_t i = n_bytes - 1; i < packed.size(); i += n_bytes) packed[i] &= (1u << n_bits % 8) - 1u;
    }
    int sign(const std::vector<std::uint8_t>& packed, std::size_t row, std::size_t bit) const {
        return (packed[row * n_bytes + bit / 8] >> bit % 8 & 1) != 0 ? 1 : -1;
    }
    std::vector<std::int8_t> column(const std::vector<std::uint8_t>& packed, std::size_t bit) const {
        std::vector<std::int8_t> signs;
        for (std::size_t i = 0; i * n_bytes < packed.size(); ++i) {
            signs.push_back(static_cast<std::int8_t>(sign(packed, i, bit)));
        }
        return signs;
    }
    int half_margin(const std::vector<std::uint8_t>& rows, std::size_t i, std::size_t c) const {
        int twice = 0;
        for (std::size_t k = 0; k < n_bits; ++k) {
            twice += sign(rows, i, k) * (sign(weights, c, k) - sign(weights, static_cast<std::size_t>(y[i]), k));
        }
        return twice / 2;
    }
    PackedRows packed_codes() const { return {codes.data(), n, n_bytes}; }
    PackedRows packed_weights() const { return {weights.data(), n_classes, n_bytes}; }
    TrainingRows training_rows() const { return {y.data(), row_weights.data(), n, n_classes}; }

    std::size_t n, n_classes, n_bits, n_bytes;
    Random random;
    std::vector<std::uint8_t> codes, weights;
    std::vector<std::intptr_t> y;
    std::vector<double> row_weights;
};

void check_pair_sums(Problem& p, std::size_t n_tables, int n_threads) {
    const std::size_t bit = p.n_bits / 2;
    const auto bits = p.column(p.codes, bit);
    const auto weight_bits = p.column(p.weights, bit);
    std::vector<double> tables(n_tables * (2 * p.n_bits + 1));
    for (double& value : tables) value = p.random.real();
    std::vector<double> expected(2 * n_tables * p.n_classes * p.n_classes);
    for (double& sum : expected) sum = p.random.real();
    auto found = expected;
    for (std::size_t i = 0; i < p.n; ++i) {
        const std::size_t q = static_cast<std::size_t>(p.y[i]);
        for (std::size_t k = 0; k < n_tables; ++k) {
            for (std::size_t c = 0; c < p.n_classes; ++c) {
                if (c == q) continue;
                const int without = p.half_margin(p.codes, i, c) - (weight_bits[c] - weight_bits[q]) / 2 * bits[i];
                const std::size_t at = static_cast<std::size_t>(without + static_cast<int>(p.n_bits));
                const std::size_t side = bits[i] > 0 ? 0 : 1;
                expected[((side * n_tables + k) * p.n_classes + q) * p.n_classes + c] +=
                    p.row_weights[i] * tables[k * (2 * p.n_bits + 1) + at];
            }
        }
    }
    const PairTables pair_tables{tables.data(), n_tables, p.n_bits};
    pair_sums(p.packed_codes(), p.packed_weights(), bit, p.training_rows(), pair_tables, found.data(), n_threads);
    CHECK(found == expected);
}

void check_update_codes(const Problem& p, double log_step, int n_threads) {
    const int n_bits = static_cast<int>(p.n_bits);
    std::vector<double> values(4 * p.n_bits + 1);
    for (int j = 0; j <= 4 * n_bits; ++j) {
        const int half = j - 2 * n_bits;
        values[static_cast<std::size_t>(j)] = log_step != 0.0 ? std::exp(log_step * half) : std::max(0, 1 + half);
    }
    auto expected = p.codes;
    for (std::size_t i = 0; i < p.n; ++i) {
        const std::size_t q = static_cast<std::size_t>(p.y[i]);
        for (std::size_t k = 0; k < p.n_bits; ++k) {
            int top = log_step != 0.0 ? -n_bits : 0;
            for (std::size_t c = 0; log_step != 0.0 && c < p.n_classes; ++c) {
                if (c != q) top = std::max(top, p.half_margin(expected, i, c));
            }
            double present = 0.0;
            double flipped = 0.0;
            for (std::size_t c = 0; c < p.n_classes; ++c) {
                const int step = (p.sign(p.weights, c, k) - p.sign(p.weights, q, k)) * p.sign(expected, i, k);
                if (step == 0) continue;
                const int at = p.half_margin(expected, i, c) - top + 2 * n_bits;
                present += values[static_cast<std::size_t>(at)];
                flipped += values[static_cast<std::size_t>(at - step)];
            }
            if (flipped < present - 1e-12 * present) {
                expected[i * p.n_bytes + k / 8] =
                    static_cast<std::uint8_t>(expected[i * p.n_bytes + k / 8] ^ 1u << k % 8);
            }
        }
    }
    std::vector<std::uint8_t> found(p.codes.size());
    std::vector<double> log_decreases(p.n_bits);
    update_codes({p.packed_codes(), p.packed_weights(), p.y.data(), p.row_weights.data(), p.n_bits, values.data(),
                  log_step, found.data(), log_decreases.data()},
                 n_threads);
    CHECK(found == expected);
}

void check_all(std::size_t n, std::size_t n_classes, std::size_t n_bits, int n_threads) {
    Problem p(n, n_classes, n_bits);
    for (const std::size_t n_tables : {1, 2, 3}) check_pair_sums(p, n_tables, n_threads);
    if (n * n_classes * n_bits * n_bits < 20'000'000) {
        check_update_codes(p, 0.0, n_threads);
        check_update_codes(p, 0.2, n_threads);
    }
}

void check_refusals() {
    Problem p(50, 7, 20);
    std::vector<double> table(41), sums(2 * p.n_classes * p.n_classes);
    const auto refuses_sums = [&] {
        try {
            pair_sums(p.packed_codes(), p.packed_weights(), 0, p.training_rows(), {table.data(), 1, p.n_bits},
                      sums.data(), 2);
        } catch (const std::invalid_argument&) {
            return true;
        }
        return false;
    };
    CHECK(!refuses_sums());
    p.codes.back() |= 0x80;  // past the last bit
    CHECK(refuses_sums());
    p.codes.back() &= 0x0f;
    std::swap(p.y.front(), p.y.back());
    CHECK(refuses_sums());
    p.y.assign(p.n, -1);
    CHECK(refuses_sums());
}

}  // namespace

void test_paper() {
    for (const std::size_t n_bits : {1, 7, 16, 65, 130}) {
        for (const std::size_t n_classes : {1, 2, 9, 33, 70}) {
            for (const std::size_t n : {0, 1, 40}) check_all(n, n_classes, n_bits, 1);
        }
    }
    check_all(700, 100, 31, 3);
    check_all(3000, 2, 3, 2);
    check_all(3, 40, 600, 2);  // more pieces than a byte can count
    check_refusals();
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) callers.emplace_back([] { check_all(500, 66, 12, 3); });
    for (auto& caller : callers) caller.join();
}

}  // namespace bitclass::tests
