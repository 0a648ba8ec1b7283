// Bit flipping, the paper's Algorithm 1, for f(w) = w'Hw / 2 + g.w: flip the bit of steepest descent until no flip
// improves f. A flip reads one row of H.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "../dispatch.hpp"
#include "../pool.hpp"
#include "class_runs.hpp"
#include "paper.hpp"

namespace bitclass {
namespace {

constexpr std::size_t kMaxFlipsPerClass = 1000;
constexpr std::size_t kRowsPerChunk = 64;
constexpr std::size_t kMinEntriesForThreads = 1 << 18;

// Slopes Hw + g and tolerances of `rows` consecutive classes. Each sum is sequential, so several are computed
// at once to hide the latency of an addition.
template <int rows>
void initial_slopes(const double* H, const double* g, const double* w, std::size_t n_classes, double* slope,
                    double* tolerance) {
    double sums[rows] = {};
    double magnitudes[rows] = {};
    for (std::size_t q = 0; q < n_classes; ++q) {
        for (int i = 0; i < rows; ++i) {
            const double entry = H[static_cast<std::size_t>(i) * n_classes + q];
            sums[i] += entry * w[q];
            magnitudes[i] += std::fabs(entry);
        }
    }
    for (int i = 0; i < rows; ++i) {
        slope[i] = sums[i] + g[i];
        tolerance[i] = kRelativeTolerance * (magnitudes[i] + std::fabs(g[i]));
    }
}

// A diagonal entry would count as a gain of every flip of its bit, back and forth.
void require_zero_diagonal(const double* H, std::size_t n_classes) {
    for (std::size_t c = 0; c < n_classes; ++c) {
        const double entry = H[c * n_classes + c];
        if (!(std::fabs(entry) > 0.0)) continue;  // a NaN stops the flips by itself
        throw std::invalid_argument("H: expected a diagonal of zeros, found " + std::to_string(entry) + " for class " +
                                    std::to_string(c));
    }
}

}  // namespace

double flip_bits(const double* H, const double* g, std::int8_t* w, std::size_t n_classes, int n_threads) {
    require_signs(w, n_classes, "w");
    require_zero_diagonal(H, n_classes);
    const PaperKernels& loops = kernels().paper;
    std::vector<double> signs(w, w + n_classes);
    std::vector<double> slope(n_classes);
    std::vector<double> tolerance(n_classes);
    std::vector<double> gains(n_classes);
    if (n_classes * n_classes < kMinEntriesForThreads) n_threads = 1;
    parallel_for(chunks_of(n_classes, kRowsPerChunk), n_threads, [&](std::size_t chunk) {
        const std::size_t end = std::min(n_classes, (chunk + 1) * kRowsPerChunk);
        std::size_t c = chunk * kRowsPerChunk;
        for (; c + 4 <= end; c += 4) {
            initial_slopes<4>(H + c * n_classes, g + c, signs.data(), n_classes, &slope[c], &tolerance[c]);
        }
        for (; c < end; ++c) {
            initial_slopes<1>(H + c * n_classes, g + c, signs.data(), n_classes, &slope[c], &tolerance[c]);
        }
    });
    double decrease = 0.0;
    const std::vector<double> zeros(n_classes);  // instead of a row of H before the first flip
    const double* flipped_row = zeros.data();
    double factor = 0.0;
    for (std::size_t n_flips = 0;; ++n_flips) {
        const double largest = loops.move_slopes(slope.data(), flipped_row, factor, signs.data(), tolerance.data(),
                                                 n_classes, gains.data());
        if (!(largest > 0.0)) break;  // no flip improves f, or a gain is NaN
        if (n_flips == kMaxFlipsPerClass * n_classes) {
            throw std::invalid_argument("H: expected a symmetric matrix, found one whose flips do not end");
        }
        // Among gains that are equal up to rounding, take the lowest index: noise must not choose.
        const auto best = std::find(gains.begin(), gains.end(), largest);
        const double tie_limit = largest - tolerance[static_cast<std::size_t>(best - gains.begin())];
        const auto first = std::find_if(gains.begin(), best, [=](double gain) { return gain >= tie_limit; });
        const std::size_t c = static_cast<std::size_t>(first - gains.begin());
        decrease += 2.0 * gains[c];
        signs[c] = -signs[c];
        factor = 2.0 * signs[c];
        flipped_row = H + c * n_classes;
    }
    for (std::size_t c = 0; c < n_classes; ++c) w[c] = static_cast<std::int8_t>(signs[c]);
    return decrease;
}

}  // namespace bitclass
