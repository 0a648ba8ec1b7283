// The inner loops of class_sums and standardise: see training.hpp.

template <std::size_t n_rows, class Float>
void add_exactly(double* __restrict sums, const Float* const* rows, const double* weights, std::size_t n) {
    const Float* x[n_rows];
    double weight[n_rows];
    for (std::size_t i = 0; i < n_rows; ++i) {
        x[i] = rows[i];
        weight[i] = weights[i];
    }
    for (std::size_t j = 0; j < n; ++j) {
        double sum = sums[j];
        for (std::size_t i = 0; i < n_rows; ++i) sum += weight[i] * static_cast<double>(x[i][j]);
        sums[j] = sum;
    }
}

template <class Float>
void add_rows(double* sums, const Float* const* rows, const double* weights, std::size_t n_rows, std::size_t n) {
    static_assert(kRowsAtOnce == 8, "the steps below add up to the number of rows");
    if (n_rows == 8) return add_exactly<8>(sums, rows, weights, n);
    if ((n_rows & 4) != 0) add_exactly<4>(sums, rows, weights, n);
    if ((n_rows & 2) != 0) add_exactly<2>(sums, rows + (n_rows & 4), weights + (n_rows & 4), n);
    if ((n_rows & 1) != 0) add_exactly<1>(sums, rows + (n_rows & 6), weights + (n_rows & 6), n);
}

template <class Float>
void standardise_row(const Float* row, const Float* shift, const Float* factor, Float* __restrict out, std::size_t n) {
    for (std::size_t j = 0; j < n; ++j) out[j] = (row[j] - shift[j]) * factor[j];
}

constexpr TrainingKernels kTrainingKernels = {{&add_rows<float>, &standardise_row<float>},
                                              {&add_rows<double>, &standardise_row<double>}};
