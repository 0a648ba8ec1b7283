#include <optional>

#include "arrays.hpp"
#include "sparse.hpp"

namespace bitclass {
namespace {

// Compressed rows from Python. Offsets and columns come from files too, so they are checked one by one.
class SparseArray {
public:
    SparseArray(nb::handle indptr, nb::handle indices, nb::handle data, nb::handle rows, std::size_t n_columns)
        : starts_(indptr, "indptr", 1), columns_(indices, "indices", 1), values_(data, "data", 1) {
        values_.require_length(0, columns_.shape(0));
        if (starts_.shape(0) == 0) throw nb::value_error("indptr: expected at least one offset, found none");
        const std::size_t n_stored = starts_.shape(0) - 1;
        const auto n_entries = static_cast<std::int64_t>(columns_.shape(0));
        std::size_t n = n_stored;
        if (!rows.is_none()) {
            rows_.emplace(rows, "rows", 1);
            n = rows_->shape(0);
        }
        view_ = {starts_.data(), columns_.data(), values_.data(), rows_ ? rows_->data() : nullptr, n};
        for (std::size_t i = 0; i < n; ++i) {
            if (rows_ && (rows_->data()[i] < 0 || view_.stored(i) >= n_stored)) {
                throw nb::value_error("rows: expected numbers of rows that exist");
            }
            const std::size_t row = view_.stored(i);
            const std::int64_t begin = starts_.data()[row], end = starts_.data()[row + 1];
            if (begin < 0 || end < begin || end > n_entries) {
                throw nb::value_error("indptr: expected ascending offsets into indices");
            }
            for (std::int64_t e = begin; e < end; ++e) {
                if (static_cast<std::uint32_t>(columns_.data()[e]) >= n_columns) {
                    throw nb::value_error("indices: expected numbers of columns that exist");
                }
            }
        }
    }
    // ValueError unless the columns that occur, and only these are looked at, are in a table of k rows or nowhere.
    void require_places(const std::int32_t* places, std::size_t k) const {
        for (std::size_t i = 0; i < view_.n; ++i) {
            const std::size_t row = view_.stored(i);
            for (std::int64_t e = view_.starts[row]; e < view_.starts[row + 1]; ++e) {
                if (places[view_.columns[e]] >= static_cast<std::int64_t>(k)) {
                    throw nb::value_error("places: expected numbers of rows of projection, or -1");
                }
            }
        }
    }
    const SparseRows& view() const { return view_; }
    const AnyArray& starts() const { return starts_; }
    const AnyArray& columns() const { return columns_; }
    const AnyArray& values() const { return values_; }

private:
    Array<const std::int64_t> starts_;
    Array<const std::int32_t> columns_;
    Array<const float> values_;
    std::optional<Array<const std::int64_t>> rows_;
    SparseRows view_{};
};

template <class T>
void scores(nb::handle indptr, nb::handle indices, nb::handle data, nb::handle rows, nb::handle places,
            nb::handle factors, nb::handle projection, nb::handle steps, nb::handle out, int n_threads) {
    const Array<const T> table(projection, "projection", 2);
    const Array<float> found(out, "scores", 2);
    std::optional<Array<const std::int32_t>> where;
    std::optional<Array<const float>> by, units;
    std::size_t n_columns = table.shape(0);
    if (!places.is_none()) {
        where.emplace(places, "places", 1);
        n_columns = where->shape(0);
    }
    if (!factors.is_none()) {
        by.emplace(factors, "factors", 1);
        by->require_length(0, table.shape(0));
    }
    if (!steps.is_none()) {
        units.emplace(steps, "steps", 1);
        units->require_length(0, table.shape(1));
    }
    if (table.shape(0) == 0) throw nb::value_error("projection: expected at least one row, found none");
    const SparseArray X(indptr, indices, data, rows, n_columns);
    if (where) X.require_places(where->data(), table.shape(0));
    found.require_length(0, X.view().n);
    found.require_length(1, table.shape(1));
    require_apart({&found, &table, &X.starts(), &X.columns(), &X.values()});
    require_threads(n_threads);
    const KeptColumns kept{where ? where->data() : nullptr, by ? by->data() : nullptr};
    const WithoutGil released;
    sparse_scores(X.view(), kept, table.data(), units ? units->data() : nullptr, table.shape(1), found.data(), n_threads);
}

void step(nb::handle indptr, nb::handle indices, nb::handle data, nb::handle rows, nb::handle gradients, float size,
          nb::handle projection, nb::handle squares, nb::handle counts, int n_threads) {
    const Array<const float> by_scores(gradients, "gradients", 2);
    const Array<float> table(projection, "projection", 2);
    const Array<float> means(squares, "squares", 1);
    const Array<std::int32_t> times(counts, "counts", 1);
    const SparseArray X(indptr, indices, data, rows, table.shape(0));
    by_scores.require_length(0, X.view().n);
    by_scores.require_length(1, table.shape(1));
    means.require_length(0, table.shape(0));
    times.require_length(0, table.shape(0));
    require_apart({&by_scores, &table, &means, &times, &X.starts(), &X.columns(), &X.values()});
    require_threads(n_threads);
    const WithoutGil released;
    sparse_step(X.view(), by_scores.data(), size, table.data(), means.data(), times.data(), table.shape(0),
                table.shape(1), n_threads);
}

template <class T>
void define_scores(nb::module_& m, const char* name) {
    m.def(name, &scores<T>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("rows").none(),
          nb::arg("places").none(), nb::arg("factors").none(), nb::arg("projection"), nb::arg("steps").none(),
          nb::arg("scores"), nb::arg("n_threads"), "Write sparse rows times a projection.");
}

}  // namespace

void bind_sparse(nb::module_& m) {
    define_scores<float>(m, "sparse_scores_float32");
    define_scores<std::int8_t>(m, "sparse_scores_int8");
    m.def("sparse_step", &step, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("rows").none(),
          nb::arg("gradients"), nb::arg("size"), nb::arg("projection"), nb::arg("squares"), nb::arg("counts"),
          nb::arg("n_threads"), "Move the columns of a mini-batch against their gradients.");
}

}  // namespace bitclass
