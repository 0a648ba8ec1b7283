// Feature sums of each class: one pass over the rows, as fast as they come from memory.
#include <algorithm>
#include <vector>

#include "class_runs.hpp"
#include "label_order.hpp"
#include "pool.hpp"
#include "tiles.hpp"
#include "training.hpp"

namespace bitclass {
namespace {

// Features of one task, a multiple of a cache line of floats.
constexpr std::size_t kFeaturesATask = 256;

void add_row(const TileKernels& kernels, double* sums, const float* x, double weight, std::size_t n) {
    kernels.add_row_float(sums, x, weight, n);
}

void add_row(const TileKernels& kernels, double* sums, const double* x, double weight, std::size_t n) {
    kernels.add_row_double(sums, x, weight, n);
}

}  // namespace

template <class Float>
void class_sums(const Float* x, std::size_t n, std::size_t n_features, const std::intptr_t* labels,
                const double* row_weights, double* sums, std::size_t n_classes, int n_threads) {
    require_classes(labels, n, n_classes, "labels");
    const TileKernels& kernels = tile_kernels();
    // Class after class, so that the sums being added to stay in the cache.
    const std::vector<std::size_t> order = order_by_label(labels, n);
    parallel_for(chunks_of(n_features, kFeaturesATask), n_threads, [&](std::size_t task) {
        const std::size_t begin = task * kFeaturesATask;
        const std::size_t width = std::min(kFeaturesATask, n_features - begin);
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t row = order.empty() ? i : order[i];
            const std::size_t label = static_cast<std::size_t>(labels[row]);
            add_row(kernels, sums + label * n_features + begin, x + row * n_features + begin,
                    row_weights[row], width);
        }
    });
}

template void class_sums(const float*, std::size_t, std::size_t, const std::intptr_t*, const double*, double*,
                         std::size_t, int);
template void class_sums(const double*, std::size_t, std::size_t, const std::intptr_t*, const double*, double*,
                         std::size_t, int);

}  // namespace bitclass
