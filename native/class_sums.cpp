// Standardised features, and their sums over each class, in one pass over the rows, limited by memory bandwidth.
#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.hpp"
#include "pool.hpp"
#include "training.hpp"

namespace bitclass {
namespace {

// Minimum number of rows per task, and the number of tasks from which on rows are not divided: whole
// rows are longer streams of memory.
constexpr std::size_t kRowsPerTask = 1024;
constexpr std::size_t kEnoughTasks = 8;
// Otherwise features are divided among tasks, in whole cache lines.
constexpr std::size_t kMinFeaturesPerTask = 256;
constexpr std::size_t kFeatureShares = 4;
constexpr std::size_t kFeaturesPerLine = 16;
// Values standardised per task.
constexpr std::size_t kValuesPerTask = 1 << 16;

std::size_t features_per_task(std::size_t n_features, std::size_t n_row_tasks) {
    if (n_row_tasks >= kEnoughTasks) return std::max<std::size_t>(n_features, 1);
    const std::size_t share = chunks_of(n_features, kFeatureShares * kFeaturesPerLine) * kFeaturesPerLine;
    return std::max(kMinFeaturesPerTask, share);
}

}  // namespace

void require_classes(const std::intptr_t* labels, std::size_t n, std::size_t n_classes, const char* name) {
    std::size_t largest = 0;
    // Negative labels become huge when converted to unsigned.
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<std::size_t>(labels[i]));
    if (n > 0 && largest >= n_classes) {
        throw std::invalid_argument(std::string(name) + ": expected class indices in [0, " + std::to_string(n_classes) +
                                    "), found " + std::to_string(static_cast<std::intptr_t>(largest)));
    }
}

std::vector<std::size_t> order_by_label(const std::intptr_t* labels, std::size_t n) {
    if (std::is_sorted(labels, labels + n)) return {};
    std::vector<std::size_t> order(n);
    const auto [lowest, highest] = std::minmax_element(labels, labels + n);
    // Unsigned, so that the difference cannot overflow.
    const std::size_t range = static_cast<std::size_t>(*highest) - static_cast<std::size_t>(*lowest);
    if (range <= 4 * n) {
        const std::size_t base = static_cast<std::size_t>(*lowest);
        std::vector<std::size_t> starts(range + 2);
        for (std::size_t i = 0; i < n; ++i) ++starts[static_cast<std::size_t>(labels[i]) - base + 1];
        std::partial_sum(starts.begin(), starts.end(), starts.begin());
        for (std::size_t i = 0; i < n; ++i) order[starts[static_cast<std::size_t>(labels[i]) - base]++] = i;
    } else {
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return labels[a] < labels[b]; });
    }
    return order;
}

template <class Float>
void class_sums(const Float* x, std::size_t n, std::size_t n_features, const std::intptr_t* labels,
                const double* row_weights, double* sums, std::size_t n_classes, int n_threads) {
    require_classes(labels, n, n_classes, "labels");
    const RowKernels<Float>& loops = kernels().training;
    // Ordered by class, so that a sum is loaded and stored once for several rows.
    const std::vector<std::size_t> order = order_by_label(labels, n);
    const auto row_at = [&](std::size_t place) { return order.empty() ? place : order[place]; };
    std::vector<std::size_t> starts{0};  // of the row tasks; no class is split between two
    for (std::size_t i = 1; i < n; ++i) {
        if (i - starts.back() >= kRowsPerTask && labels[row_at(i)] != labels[row_at(i - 1)]) starts.push_back(i);
    }
    const std::size_t n_row_tasks = starts.size();
    starts.push_back(n);
    const std::size_t share = features_per_task(n_features, n_row_tasks);
    parallel_for(n_row_tasks * chunks_of(n_features, share), n_threads, [&](std::size_t task) {
        const std::size_t begin = task / n_row_tasks * share;
        const std::size_t width = std::min(share, n_features - begin);
        const std::size_t end_row = starts[task % n_row_tasks + 1];
        const Float* rows[kRowsAtOnce];
        double weights[kRowsAtOnce];
        for (std::size_t i = starts[task % n_row_tasks]; i < end_row;) {
            const std::size_t label = static_cast<std::size_t>(labels[row_at(i)]);
            std::size_t n_rows = 0;
            for (; n_rows < kRowsAtOnce && i < end_row; ++n_rows, ++i) {
                const std::size_t row = row_at(i);
                if (static_cast<std::size_t>(labels[row]) != label) break;
                rows[n_rows] = x + row * n_features + begin;
                weights[n_rows] = row_weights[row];
            }
            loops.add_rows(sums + label * n_features + begin, rows, weights, n_rows, width);
        }
    });
}

template void class_sums(const float*, std::size_t, std::size_t, const std::intptr_t*, const double*, double*,
                         std::size_t, int);
template void class_sums(const double*, std::size_t, std::size_t, const std::intptr_t*, const double*, double*,
                         std::size_t, int);

template <class Float>
void standardise(const Float* x, const std::intptr_t* rows, std::size_t n, std::size_t n_features, const Float* shift,
                 const Float* factor, Float* out, int n_threads) {
    const RowKernels<Float>& loops = kernels().training;
    const std::size_t n_rows = std::max<std::size_t>(1, kValuesPerTask / std::max<std::size_t>(n_features, 1));
    parallel_for(chunks_of(n, n_rows), n_threads, [&](std::size_t task) {
        for (std::size_t i = task * n_rows; i < std::min(n, (task + 1) * n_rows); ++i) {
            const Float* const row = x + static_cast<std::size_t>(rows[i]) * n_features;
            loops.standardise(row, shift, factor, out + i * n_features, n_features);
        }
    });
}

template void standardise(const float*, const std::intptr_t*, std::size_t, std::size_t, const float*, const float*, float*,
                          int);
template void standardise(const double*, const std::intptr_t*, std::size_t, std::size_t, const double*, const double*, double*,
                          int);

}  // namespace bitclass
