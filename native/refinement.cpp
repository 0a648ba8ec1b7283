#include "refinement.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "blas.hpp"
#include "dispatch.hpp"
#include "pool.hpp"
#include "training.hpp"

namespace bitclass {

namespace {

constexpr double kTiny = 1e-9;  // least probability in a logarithm

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
    const std::size_t n_rows = rows_per_part(m);
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
        const Matrix<float> weights{loss.weights, r}, transposed{loss.weights, r, true};
        multiply<float>({inputs + begin * r, r}, transposed, end - begin, n_classes, r, by_rows, n_classes);
        for (std::size_t i = begin; i < end; ++i) {
            const std::size_t kind = i < loss.n_signs ? 0 : 1;
            const auto label = static_cast<std::size_t>(labels[i]);
            const float probability = level.slopes(slopes + i * n_classes, shifts[kind].data(), n_classes,
                                                   loss.sharpness[kind], factors[i], label);
            losses[part] -= factors[i] * std::log(probability + kTiny);
        }
        std::vector<float> gradient((end - begin) * r);
        multiply<float>({by_rows, n_classes}, weights, end - begin, r, n_classes, gradient.data(), r);
        level.by_tanh(gradient.data(), scores + begin * r, gradient.size());
    });
    return std::accumulate(losses.begin(), losses.end(), 0.0);
}

void adam_step(const AdamStep& step, const float* left, const float* right, std::size_t m, std::size_t k,
               std::size_t r, float* values, float* means, float* squares, float* signs, int n_threads) {
    const RefinementKernels& level = kernels().refinement;
    const std::size_t n_rows = rows_per_part(k);
    parallel_for(chunks_of(k, n_rows), n_threads, [&](std::size_t part) {
        const std::size_t begin = part * n_rows, size = std::min(n_rows, k - begin), at = begin * r;
        std::vector<float> gradient(size * r);
        if (r == 1) {  // which BLAS does not do well
            for (std::size_t i = 0; i < m; ++i) {
                const float* const row = left + i * k + begin;
                for (std::size_t j = 0; j < size; ++j) gradient[j] += row[j] * right[i];
            }
        } else {
            multiply<float>({left + begin, k, true}, {right, r}, size, r, m, gradient.data(), r);
        }
        level.adam(step, gradient.data(), values + at, means + at, squares + at, size * r);
        if (signs == nullptr) return;
        level.clip(values + at, size * r);
        level.signs(values + at, size * r, signs + at);
    });
}

}  // namespace bitclass
