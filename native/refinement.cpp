#include "refinement.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "dispatch.hpp"
#include "multiply.hpp"
#include "pool.hpp"
#include "training.hpp"

namespace bitclass {

namespace {

constexpr double kTiny = 1e-9;  // least probability in a logarithm
constexpr std::size_t kRowsPerPart = 24;  // whole tiles of a product

}  // namespace

double class_gradients(const ClassLoss& loss, float* scores, std::size_t m, const std::intptr_t* labels,
                       const float* factors, float* inputs, float* slopes, int n_threads) {
    const std::size_t n_classes = loss.n_classes, r = loss.n_bits;
    require_classes(labels, m, n_classes, "labels");
    const RefinementKernels& level = kernels().refinement;
    std::vector<float> shifts[2];
    for (std::size_t kind = 0; kind < 2; ++kind) {
        for (std::size_t c = 0; c < n_classes; ++c) {
            shifts[kind].push_back(loss.bias[c] * loss.sharpness[kind] + loss.log_shares[c]);
        }
    }
    const PackedMatrix<float> transposed({loss.weights, r, true}, r, n_classes, n_threads);
    const PackedMatrix<float> weights({loss.weights, r}, n_classes, r, n_threads);
    const std::size_t n_rows = kRowsPerPart;
    std::vector<double> losses(chunks_of(m, n_rows));
    parallel_for(losses.size(), n_threads, [&](std::size_t part) {
        const std::size_t begin = part * n_rows, end = std::min(m, begin + n_rows);
        float* const by_rows = slopes + begin * n_classes;
        level.tanh(scores + begin * r, (end - begin) * r);
        for (std::size_t i = begin; i < end; ++i) {
            float* const row = scores + i * r;
            if (i < loss.n_signs) {
                level.signs(row, r, inputs + i * r);
            } else {
                std::copy(row, row + r, inputs + i * r);
            }
        }
        transposed.multiply({inputs + begin * r, r}, end - begin, by_rows, n_classes);
        for (std::size_t i = begin; i < end; ++i) {
            const std::size_t kind = i < loss.n_signs ? 0 : 1;
            const auto label = static_cast<std::size_t>(labels[i]);
            const float probability = level.slopes(slopes + i * n_classes, shifts[kind].data(), n_classes,
                                                   loss.sharpness[kind], factors[i], label);
            losses[part] -= factors[i] * std::log(probability + kTiny);
        }
        std::vector<float> gradient((end - begin) * r);
        weights.multiply({by_rows, n_classes}, end - begin, gradient.data(), r);
        level.by_tanh(gradient.data(), scores + begin * r, gradient.size());
    });
    return std::accumulate(losses.begin(), losses.end(), 0.0);
}

void log_probabilities(const float* scores, std::size_t m, std::size_t n_classes, const std::intptr_t* labels,
                       const float* shifts, float sharpness, float* out, int n_threads) {
    require_classes(labels, m, n_classes, "labels");
    const std::size_t n_rows = kRowsPerPart;
    parallel_for(chunks_of(m, n_rows), n_threads, [&](std::size_t part) {
        for (std::size_t i = part * n_rows; i < std::min(m, (part + 1) * n_rows); ++i) {
            const auto label = static_cast<std::size_t>(labels[i]);
            out[i] =
                kernels().refinement.log_probability(scores + i * n_classes, shifts, n_classes, sharpness, label);
        }
    });
}

void adam_step(const AdamStep& step, const float* left, const float* right, std::size_t m, std::size_t k,
               std::size_t r, float* values, float* means, float* squares, float* signs, int n_threads) {
    const RefinementKernels& level = kernels().refinement;
    const PackedMatrix<float> packed({right, r}, m, r, n_threads);
    const std::size_t n_rows = kRowsPerPart;
    parallel_for(chunks_of(k, n_rows), n_threads, [&](std::size_t part) {
        const std::size_t begin = part * n_rows, size = std::min(n_rows, k - begin), at = begin * r;
        std::vector<float> gradient(size * r);
        packed.multiply({left + begin, k, true}, size, gradient.data(), r);
        level.adam(step, gradient.data(), values + at, means + at, squares + at, size * r);
        if (signs == nullptr) return;
        level.clip(values + at, size * r);
        level.signs(values + at, size * r, signs + at);
    });
}

}  // namespace bitclass
