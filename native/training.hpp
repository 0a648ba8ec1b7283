// Sums of rows: functions of pointers and sizes. tests/native/reference.py defines what they compute, including the
// order of sums. Invalid contents of an array throw std::invalid_argument with the name of the argument; shapes
// are checked by the bindings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bitclass {

// x (n, n_features), sums (n_classes, n_features).
template <class Float>
void class_sums(const Float* x, std::size_t n, std::size_t n_features, const std::intptr_t* labels,
                const double* row_weights, double* sums, std::size_t n_classes, int n_threads);

// out = (x - shift) * factor for rows x (n, n_features).
template <class Float>
void standardise(const Float* x, const std::intptr_t* rows, std::size_t n, std::size_t n_features, const Float* shift,
                 const Float* factor, Float* out, int n_threads);

// Throws unless each label is in [0, n_classes).
void require_classes(const std::intptr_t* labels, std::size_t n, std::size_t n_classes, const char* name);

// Row numbers in a stable order by label; empty if the rows are already ordered.
std::vector<std::size_t> order_by_label(const std::intptr_t* labels, std::size_t n);

// Maximum number of rows added to a sum at once.
constexpr std::size_t kRowsAtOnce = 8;

template <class Float>
struct RowKernels {
    // sums[j] += weights[i] * rows[i][j], in row order, for at most kRowsAtOnce rows.
    void (*add_rows)(double* sums, const Float* const* rows, const double* weights, std::size_t n_rows, std::size_t n);
    // out[j] = (row[j] - shift[j]) * factor[j]
    void (*standardise)(const Float* row, const Float* shift, const Float* factor, Float* out, std::size_t n);
};

struct TrainingKernels : RowKernels<float>, RowKernels<double> {};

}  // namespace bitclass
