#include <algorithm>
#include <cmath>

#include "../dispatch.hpp"
#include "check.hpp"

namespace bitclass::tests {
namespace {

struct Problem {
    std::size_t n, d, r;
    std::vector<float> X, centre, inverse_scale;
    std::vector<std::int8_t> weights;
    std::vector<double> thresholds, steps;

    Problem(std::size_t n, std::size_t d, std::size_t r) : n(n), d(d), r(r) {
        Random random(static_cast<unsigned>(n * 1000003 + d * 1009 + r));
        for (std::size_t i = 0; i < n * d; ++i) X.push_back(i / d % 5 == 3 ? 0.0f : random.real());
        // Rows with a non-finite entry are encoded as rows of zeros.
        for (std::size_t i = 2; i < n; i += 5) X[i * d + i % d] *= 1000.0f;
        for (std::size_t i = 4; i < n; i += 5) X[i * d + i % d] = i % 2 == 0 ? NAN : -INFINITY;
        for (std::size_t j = 0; j < d; ++j) {
            centre.push_back(random.real());
            inverse_scale.push_back(0.5f + std::fabs(random.real()));
        }
        for (std::size_t j = 0; j < d * r; ++j) weights.push_back(static_cast<std::int8_t>(random.integer(-127, 127)));
        for (std::size_t k = 0; k < r; ++k) {
            thresholds.push_back(random.real() * 20.0);
            steps.push_back(0.01);
        }
    }
    Features features() const {
        return {X.data(), Features::Type::float32, n, d, static_cast<std::ptrdiff_t>(d * sizeof(float))};
    }
};

bool bit_of(const std::vector<std::uint8_t>& codes, std::size_t i, std::size_t k, std::size_t r) {
    return codes[i * packed_width(r) + k / 8] >> k % 8 & 1;
}

void check_padding(const std::vector<std::uint8_t>& codes, std::size_t n, std::size_t r) {
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = r; k < 8 * packed_width(r); ++k) CHECK(!bit_of(codes, i, k, r));
    }
}

void check_int8(const Problem& p, bool standardise, int n_threads) {
    const Int8Projection projection(p.weights.data(), p.d, p.r, p.thresholds.data(), p.steps.data(),
                                    standardise ? p.centre.data() : nullptr,
                                    standardise ? p.inverse_scale.data() : nullptr);
    std::vector<std::uint8_t> codes(p.n * packed_width(p.r), 0xff);
    projection.encode(p.features(), codes.data(), n_threads);
    check_padding(codes, p.n, p.r);
    for (std::size_t i = 0; i < p.n; ++i) {
        std::vector<float> row(p.X.begin() + static_cast<std::ptrdiff_t>(i * p.d),
                               p.X.begin() + static_cast<std::ptrdiff_t>((i + 1) * p.d));
        float largest = 0.0f;
        bool finite = true;
        for (std::size_t j = 0; j < p.d; ++j) {
            if (standardise) row[j] = (row[j] - p.centre[j]) * p.inverse_scale[j];
            finite = finite && std::isfinite(row[j]);
            if (standardise && finite) row[j] = std::clamp(row[j], -32.0f, 32.0f);
            largest = std::max(largest, std::fabs(row[j]));
        }
        if (!finite) {
            std::fill(row.begin(), row.end(), 0.0f);
            largest = 0.0f;
        }
        const float factor = largest > 0.0f ? 127.0f / largest : 1.0f;
        for (std::size_t k = 0; k < p.r; ++k) {
            std::int64_t sum = 0;
            for (std::size_t j = 0; j < p.d; ++j) {
                sum += static_cast<std::int64_t>(std::nearbyint(row[j] * factor)) * p.weights[j * p.r + k];
            }
            const bool expected = static_cast<double>(sum) + p.thresholds[k] * double{factor} >= 0;
            CHECK(bit_of(codes, i, k, p.r) == expected);
        }
    }

    const HammingIndex index(codes.data(), std::max<std::size_t>(p.n, 1), packed_width(p.r));
    std::vector<std::int64_t> indices(p.n), searched(p.n);
    std::vector<std::int32_t> distances(p.n);
    predict(projection, index, p.features(), {indices.data(), distances.data()}, n_threads);
    index.nearest(codes.data(), p.n, {searched.data(), distances.data()}, 1);
    CHECK(indices == searched);
}

void check_pack(std::size_t n, std::size_t r) {
    Random random(static_cast<unsigned>(n * 1009 + r));
    std::vector<float> scores, intercept;
    for (std::size_t i = 0; i < n * r; ++i) scores.push_back(static_cast<float>(random.integer(-2, 2)));
    for (std::size_t k = 0; k < r; ++k) intercept.push_back(static_cast<float>(random.integer(-1, 1)));
    std::vector<std::uint8_t> codes(n * packed_width(r), 0xff);
    kernels().encode.pack(scores.data(), n, r, intercept.data(), codes.data());
    check_padding(codes, n, r);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < r; ++k) CHECK(bit_of(codes, i, k, r) == (scores[i * r + k] + intercept[k] >= 0));
    }
}

// Rows of halves of about the same size are encoded as the floats that they stand for.
void check_halves() {
    const std::size_t d = 16, n = 0x7c00 / d, r = 40;
    const Problem p(1, d, r);
    const Int8Projection projection(p.weights.data(), d, r, p.thresholds.data(), p.steps.data(), nullptr, nullptr);
    std::vector<Half> halves;
    std::vector<float> floats;
    for (unsigned bits = 0; bits < 0x7c00; ++bits) {
        const int exponent = static_cast<int>(bits >> 10);
        const float fraction = static_cast<float>(bits & 0x3ff);
        halves.push_back({static_cast<std::uint16_t>(bits)});
        floats.push_back(exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0f + fraction, exponent - 25));
    }
    std::vector<std::uint8_t> found(n * packed_width(r)), expected(n * packed_width(r));
    projection.encode({halves.data(), Features::Type::float16, n, d, 2 * d}, found.data(), 1);
    projection.encode({floats.data(), Features::Type::float32, n, d, 4 * d}, expected.data(), 1);
    CHECK(found == expected);
}

}  // namespace

void test_encode() {
    for (const std::size_t d : {1, 15, 16, 63, 64, 65, 200, 1100}) {
        for (const std::size_t r : {1, 8, 9, 33, 64, 100}) {
            const Problem problem(1 + (d + r) % 15, d, r);
            check_int8(problem, false, 1);
            check_int8(problem, true, 1);
        }
    }
    check_int8(Problem(300, 70, 20), true, 3);
    for (const std::size_t r : {1, 7, 8, 64, 99}) {
        check_pack(11, r);
        check_pack(200, r);
    }
    check_halves();
}

}  // namespace bitclass::tests
