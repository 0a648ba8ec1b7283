// Python bindings of the kernels. Types and shapes are checked here, contents by the kernels; results are new arrays.
// src/bitclass/_native/_kernels.pyi lists the signatures.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "dispatch.hpp"
#include "linear_algebra.hpp"
#include "ngrams.hpp"
#include "paper/bindings.hpp"
#include "pool.hpp"
#include "training.hpp"

namespace bitclass {
namespace {

using Codes = Array<const std::uint8_t>;
using Labels = Array<const std::intptr_t>;
using Doubles = Array<const double>;
using FloatArray = Array<const float>;

// -- Search

// The biases of classes, or none.
struct Biases {
    Biases(nb::handle bias, std::size_t n_classes) {
        if (!bias.is_none()) values.emplace(bias, "bias", Shape{n_classes});
    }
    const float* data() const { return values ? values->data() : nullptr; }
    std::optional<FloatArray> values;
};

HammingIndex* make_index(nb::handle weights, nb::handle bias) {
    const Codes packed(weights, "weights", {kAny, kAny});
    const Biases biases(bias, packed.shape(0));
    const WithoutGil released;
    return new HammingIndex(packed.data(), packed.shape(0), packed.shape(1), biases.data());
}

HammingIndex* make_clustered_index(nb::handle weights, nb::handle bias, nb::handle centres, nb::handle clusters,
                                   std::size_t n_probe) {
    const Codes packed(weights, "weights", {kAny, kAny});
    const Codes packed_centres(centres, "centres", {kAny, packed.shape(1)});
    const Array<const std::int64_t> places(clusters, "clusters", {packed.shape(0)});
    const Biases biases(bias, packed.shape(0));
    const WithoutGil released;
    return new HammingIndex(packed.data(), packed.shape(0), packed.shape(1), packed_centres.data(),
                            packed_centres.shape(0), places.data(), n_probe, biases.data());
}

void require_count(const char* name, std::size_t found, std::size_t most) {
    if (found >= 1 && found <= most) return;
    refuse_value(std::string(name) + ": expected an integer from 1 to " + std::to_string(most) + ", found " +
                 std::to_string(found));
}

void require_width(const HammingIndex& index, std::size_t n_bits) {
    if (index.n_bytes() == packed_width(n_bits)) return;
    refuse_value("index: expected " + std::to_string(packed_width(n_bits)) + " bytes per class, as codes of " +
                 std::to_string(n_bits) + " bits have, found " + std::to_string(index.n_bytes()));
}

// New arrays for the results of a search.
template <class... Lengths>
struct FoundArrays {
    explicit FoundArrays(Lengths... shape) : indices(shape...), distances(shape...) {}
    Found found() const { return {indices.data(), distances.data()}; }
    NewArray<std::int64_t> indices;
    NewArray<std::int32_t> distances;
};

nb::tuple nearest(const HammingIndex& index, nb::handle codes, int n_threads) {
    const Codes queries(codes, "codes", {kAny, index.n_bytes()});
    const FoundArrays out(queries.shape(0));
    without_gil([&] { index.nearest(queries.data(), queries.shape(0), out.found(), n_threads); });
    return nb::make_tuple(out.indices.object, out.distances.object);
}

nb::tuple top_k(const HammingIndex& index, nb::handle codes, std::size_t k, int n_threads) {
    const Codes queries(codes, "codes", {kAny, index.n_bytes()});
    require_count("k", k, index.n_classes());
    const FoundArrays out(queries.shape(0), k);
    without_gil([&] { index.top_k(queries.data(), queries.shape(0), k, out.found(), n_threads); });
    return nb::make_tuple(out.indices.object, out.distances.object);
}

nb::object scores(const HammingIndex& index, nb::handle codes, std::size_t n_bits, int n_threads) {
    const Codes queries(codes, "codes", {kAny, index.n_bytes()});
    require_width(index, n_bits);
    const NewArray<std::int32_t> products(queries.shape(0), index.n_classes());
    without_gil([&] { index.scores(queries.data(), queries.shape(0), n_bits, products.data(), n_threads); });
    return products.object;
}

nb::tuple counts(const HammingIndex& index, nb::handle codes, std::size_t n_bits, nb::handle lists, std::size_t width,
                 int n_threads) {
    const Codes queries(codes, "codes", {kAny, index.n_bytes()});
    require_width(index, n_bits);
    const std::size_t n = queries.shape(0);
    const Array<const std::int64_t> listed(lists, "lists", {n, kAny});
    const std::size_t m = listed.shape(1);
    require_count("width", width, std::numeric_limits<std::int32_t>::max());
    if (m >= index.n_classes()) refuse_value("lists: expected fewer classes than there are");
    for (std::size_t i = 0; i < n * m; ++i) {
        if (static_cast<std::uint64_t>(listed.data()[i]) >= index.n_classes()) {
            refuse_value("lists: expected indices of classes, found " + std::to_string(listed.data()[i]));
        }
    }
    const NewArray<std::int32_t> best(n);
    const NewArray<double> found(n, width);
    without_gil([&] {
        index.counts(queries.data(), n, n_bits, listed.data(), m, width, best.data(), found.data(), n_threads);
    });
    return nb::make_tuple(best.object, found.object);
}

// -- Encoding: these also return the index of the first non-finite row, or n

// Rows of features, read without a copy: only the elements of a row must be contiguous.
class FeatureArray : public AnyArray {
public:
    FeatureArray(nb::handle object, std::size_t n_features) : AnyArray(object, "X", {kAny, n_features}) {
        const Features::Type type = is("float16")   ? Features::Type::float16
                                    : is("float32") ? Features::Type::float32
                                                    : Features::Type::float64;
        if (type == Features::Type::float64 && !is("float64")) refuse("float16, float32 or float64", dtype());
        const std::ptrdiff_t size = is("float16") ? 2 : is("float32") ? 4 : 8;
        const bool contiguous = stride(1) == size || shape(1) <= 1;
        if (shape(0) > 0 && !(contiguous && stride(0) % size == 0 && aligned_to(static_cast<std::size_t>(size)))) {
            refuse("aligned, contiguous rows", "another layout");
        }
        features = {pointer(), type, shape(0), shape(1), stride(0)};
    }
    Features features{};
};

nb::tuple pack_signs(nb::handle scores, nb::handle intercept) {
    const FloatArray values(scores, "scores", {kAny, kAny});
    const FloatArray shift(intercept, "intercept", {values.shape(1)});
    const NewArray<std::uint8_t> codes(values.shape(0), packed_width(values.shape(1)));
    const EncodeKernels& level = kernels().encode;
    const std::size_t bad = without_gil(
        [&] { return level.pack(values.data(), values.shape(0), values.shape(1), shift.data(), codes.data()); });
    return nb::make_tuple(codes.object, bad);
}

// New arrays for the results of rescoring, whose arguments are checked.
struct RescoredArrays {
    RescoredArrays(const HammingIndex& index, std::size_t n, std::size_t n_bits, Rescoring wanted)
        : best(n, wanted.k), scores(n, wanted.k) {
        require_width(index, n_bits);
        require_count("n_candidates", wanted.n_candidates, index.n_classes());
        require_count("k", wanted.k, wanted.n_candidates);
    }
    Found found() const { return {best.indices.data(), best.distances.data(), scores.data()}; }
    nb::tuple with(std::size_t bad) const {
        return nb::make_tuple(best.indices.object, scores.object, best.distances.object, bad);
    }
    FoundArrays<std::size_t, std::size_t> best;
    NewArray<std::int32_t> scores;
};

nb::tuple rescore_scores(const HammingIndex& index, nb::handle scores, nb::handle intercept, std::size_t n_candidates,
                         std::size_t k, int n_threads) {
    const FloatArray values(scores, "scores", {kAny, kAny});
    const FloatArray shift(intercept, "intercept", {values.shape(1)});
    const Rescoring wanted{n_candidates, k};
    const RescoredArrays out(index, values.shape(0), values.shape(1), wanted);
    return out.with(without_gil([&] {
        return rescore(values.data(), values.shape(0), values.shape(1), shift.data(), index, wanted, out.found(),
                       n_threads);
    }));
}

Int8Projection* make_projection(nb::handle weights, nb::handle thresholds, nb::handle centre, nb::handle inverse_scale,
                                nb::handle steps) {
    const Array<const std::int8_t> quantised(weights, "weights", {kAny, kAny});
    const std::size_t n_features = quantised.shape(0), n_bits = quantised.shape(1);
    const Doubles limits(thresholds, "thresholds", {n_bits});
    const Doubles units(steps, "steps", {n_bits});
    std::optional<FloatArray> middle, factors;
    if (!centre.is_none() || !inverse_scale.is_none()) {
        middle.emplace(centre, "centre", Shape{n_features});
        factors.emplace(inverse_scale, "inverse_scale", Shape{n_features});
    }
    return new Int8Projection(quantised.data(), n_features, n_bits, limits.data(), units.data(),
                              middle ? middle->data() : nullptr, factors ? factors->data() : nullptr);
}

nb::tuple encode_rows(const Int8Projection& projection, nb::handle X, int n_threads) {
    const FeatureArray rows(X, projection.n_features());
    const NewArray<std::uint8_t> codes(rows.shape(0), packed_width(projection.n_bits()));
    const std::size_t bad = without_gil([&] { return projection.encode(rows.features, codes.data(), n_threads); });
    return nb::make_tuple(codes.object, bad);
}

nb::tuple nearest_of_rows(const Int8Projection& projection, const HammingIndex& index, nb::handle X, int n_threads) {
    const FeatureArray rows(X, projection.n_features());
    require_width(index, projection.n_bits());
    const FoundArrays out(rows.shape(0));
    const std::size_t bad =
        without_gil([&] { return predict(projection, index, rows.features, out.found(), n_threads); });
    return nb::make_tuple(out.indices.object, out.distances.object, bad);
}

nb::tuple rescored_of_rows(const Int8Projection& projection, const HammingIndex& index, nb::handle X,
                           std::size_t n_candidates, std::size_t k, int n_threads) {
    const FeatureArray rows(X, projection.n_features());
    const Rescoring wanted{n_candidates, k};
    const RescoredArrays out(index, rows.shape(0), projection.n_bits(), wanted);
    return out.with(without_gil(
        [&] { return predict_rescored(projection, index, rows.features, wanted, out.found(), n_threads); }));
}

// -- Sparse rows

// CSR rows from Python. Offsets and columns may come from files, so each of them is checked.
struct SparseArray {
    SparseArray(nb::handle indptr, nb::handle indices, nb::handle data, std::size_t n_columns)
        : starts(indptr, "indptr", {kAny}), columns(indices, "indices", {kAny}),
          values(data, "data", {columns.shape(0)}) {
        if (starts.shape(0) == 0) refuse_value("indptr: expected at least one offset, found none");
        rows = {starts.data(), columns.data(), values.data(), starts.shape(0) - 1};
        for (std::size_t i = 0; i < rows.n; ++i) {
            if (rows.starts[i + 1] < rows.starts[i]) refuse_value("indptr: expected ascending offsets into indices");
        }
        const std::int64_t begin = rows.starts[0], end = rows.starts[rows.n];
        if (begin < 0 || end > static_cast<std::int64_t>(columns.shape(0))) {
            refuse_value("indptr: expected ascending offsets into indices");
        }
        for (std::int64_t e = begin; e < end; ++e) {
            if (static_cast<std::uint32_t>(rows.columns[e]) >= n_columns) {
                refuse_value("indices: expected indices of existing columns");
            }
        }
    }
    Array<const std::int64_t> starts;
    Array<const std::int32_t> columns;
    FloatArray values;
    SparseRows rows{};
};

nb::object scores_of_sparse_rows(nb::handle indptr, nb::handle indices, nb::handle data, nb::handle projection,
                                 int n_threads) {
    const FloatArray table(projection, "projection", {kAny, kAny});
    const SparseArray X(indptr, indices, data, table.shape(0));
    const NewArray<float> scores(X.rows.n, table.shape(1));
    SparseProjection all_columns{};
    all_columns.floats = table.data();
    all_columns.n_bits = table.shape(1);
    without_gil([&] { sparse_scores(X.rows, all_columns, scores.data(), n_threads); });
    return scores.object;
}

void step_of_sparse_rows(nb::handle indptr, nb::handle indices, nb::handle data, nb::handle gradients, float size,
                         nb::handle projection, nb::handle squares, nb::handle counts, int n_threads) {
    const Array<float> table(projection, "projection", {kAny, kAny});
    const SparseArray X(indptr, indices, data, table.shape(0));
    const FloatArray by_scores(gradients, "gradients", {X.rows.n, table.shape(1)});
    const Array<float> means(squares, "squares", {table.shape(0)});
    const Array<std::int32_t> times(counts, "counts", {table.shape(0)});
    const WithoutGil released;
    sparse_step(X.rows, by_scores.data(), size, table.data(), means.data(), times.data(), table.shape(0),
                table.shape(1), n_threads);
}

// -- Linear algebra and refinement

template <class Float>
void standardise_rows(nb::handle X, nb::handle rows, nb::handle shift, nb::handle factor, nb::handle out,
                      int n_threads) {
    const Array<const Float> all(X, "X", {kAny, kAny});
    const std::size_t d = all.shape(1);
    const Array<const Float> shifts(shift, "shift", {d}), factors(factor, "factor", {d});
    const Array<const std::intptr_t> chosen(rows, "rows", {kAny});
    const Array<Float> found(out, "out", {chosen.shape(0), d});
    for (std::size_t i = 0; i < chosen.shape(0); ++i) {
        if (static_cast<std::size_t>(chosen.data()[i]) >= all.shape(0)) {
            refuse_value("rows: expected indices of rows, found " + std::to_string(chosen.data()[i]));
        }
    }
    const WithoutGil released;
    standardise(all.data(), chosen.data(), chosen.shape(0), d, shifts.data(), factors.data(), found.data(), n_threads);
}

template <class Float>
nb::object product_of(nb::handle a, bool a_transposed, nb::handle b, bool b_transposed, int n_threads) {
    const Array<const Float> left(a, "a", {kAny, kAny}), right(b, "b", {kAny, kAny});
    const std::size_t m = left.shape(a_transposed), k = left.shape(!a_transposed), n = right.shape(!b_transposed);
    if (right.shape(b_transposed) != k) {
        const std::size_t found = right.shape(b_transposed);
        refuse_value("b: expected length " + std::to_string(k) + ", found " + std::to_string(found));
    }
    const NewArray<Float> out(m, n);
    const WithoutGil released;
    product<Float>({left.data(), left.shape(1), a_transposed}, {right.data(), right.shape(1), b_transposed}, m, n, k,
                   out.data(), n_threads);
    return out.object;
}

template <class Float>
void add_gram_of(nb::handle X, nb::handle gram, int n_threads) {
    const Array<const Float> rows(X, "X", {kAny, kAny});
    const Array<double> sums(gram, "gram", {rows.shape(1), rows.shape(1)});
    const WithoutGil released;
    add_gram(rows.data(), rows.shape(0), rows.shape(1), sums.data(), n_threads);
}

template <class Float>
bool factorise(nb::handle matrix, int n_threads) {
    const AnyArray any(matrix, "matrix", {kAny, kAny});
    const Array<Float> values(matrix, "matrix", {kAny, any.shape(0)});
    const WithoutGil released;
    return cholesky(values.data(), values.shape(0), n_threads);
}

template <class Float>
void solve_in_place(nb::handle lower, nb::handle b, bool transposed, int n_threads) {
    const Array<Float> values(b, "b", {kAny, kAny});
    const Array<const Float> factor(lower, "lower", {values.shape(1), values.shape(1)});
    const WithoutGil released;
    solve_triangular(factor.data(), values.shape(1), values.data(), values.shape(0), transposed, n_threads);
}

nb::tuple gradients_of_classes(nb::handle scores, nb::handle weights, nb::handle bias, nb::handle log_shares,
                               nb::handle labels, nb::handle factors, std::tuple<float, float> sharpness,
                               std::size_t n_signs, int n_threads) {
    const Array<float> F(scores, "scores", {kAny, kAny});
    const std::size_t m = F.shape(0), r = F.shape(1);
    const FloatArray W(weights, "weights", {kAny, r});
    const std::size_t n_classes = W.shape(0);
    const FloatArray biases(bias, "bias", {n_classes}), shares(log_shares, "log_shares", {n_classes});
    const Labels y(labels, "labels", {m});
    const FloatArray of_rows(factors, "factors", {m});
    const NewArray<float> inputs(m, r), slopes(m, n_classes);
    const auto [by_sign, by_tanh] = sharpness;
    const ClassLoss loss{W.data(), biases.data(), shares.data(), {by_sign, by_tanh}, n_signs, n_classes, r};
    const double found = without_gil([&] {
        return class_gradients(loss, F.data(), m, y.data(), of_rows.data(), inputs.data(), slopes.data(), n_threads);
    });
    return nb::make_tuple(found, inputs.object, slopes.object);
}

nb::object probabilities_of_labels(nb::handle scores, nb::handle labels, nb::handle shifts, float sharpness,
                                   int n_threads) {
    const FloatArray S(scores, "scores", {kAny, kAny});
    const std::size_t m = S.shape(0), n_classes = S.shape(1);
    const Labels y(labels, "labels", {m});
    const FloatArray of_classes(shifts, "shifts", {n_classes});
    const NewArray<float> found(m);
    without_gil([&] {
        log_probabilities(S.data(), m, n_classes, y.data(), of_classes.data(), sharpness, found.data(), n_threads);
    });
    return found.object;
}

void step_of_adam(nb::handle left, nb::handle right, float rate, std::tuple<float, float> decay, float tiny,
                  nb::handle values, nb::handle means, nb::handle squares, nb::handle signs, int n_threads) {
    const FloatArray A(left, "left", {kAny, kAny});
    const FloatArray B(right, "right", {A.shape(0), kAny});
    const std::size_t m = A.shape(0), k = A.shape(1), r = B.shape(1);
    const Array<float> moved(values, "values", {k, r}), mean(means, "means", {k, r});
    const Array<float> square(squares, "squares", {k, r});
    std::optional<Array<float>> of_values;
    if (!signs.is_none()) of_values.emplace(signs, "signs", Shape{k, r});
    const AdamStep step{rate, {std::get<0>(decay), std::get<1>(decay)}, tiny};
    const WithoutGil released;
    adam_step(step, A.data(), B.data(), m, k, r, moved.data(), mean.data(), square.data(),
              of_values ? of_values->data() : nullptr, n_threads);
}

// Python texts as bytes, kept alive while they are read.
class Texts {
public:
    static constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

    explicit Texts(nb::handle sequence) {
        // A copy, so that no other thread can remove a text while the kernels read it.
        items_ = nb::steal(PySequence_Tuple(sequence.ptr()));
        if (!items_.is_valid()) nb::raise_python_error();
        const auto n = static_cast<std::size_t>(PyTuple_Size(items_.ptr()));
        views.reserve(n);
        for (std::size_t i = 0; i < n; ++i) {
            views.push_back(view(PyTuple_GetItem(items_.ptr(), static_cast<Py_ssize_t>(i)), i));
            if (views.back().size() <= kMaxBytes) continue;
            refuse_value("texts: expected at most " + std::to_string(kMaxBytes) + " bytes per text, found " +
                         std::to_string(views.back().size()) + " in text " + std::to_string(i));
        }
    }
    std::vector<std::string_view> views;

private:
    std::string_view view(PyObject* item, std::size_t i) {
        if (PyUnicode_Check(item)) {
            Py_ssize_t size = 0;
            if (const char* text = PyUnicode_AsUTF8AndSize(item, &size)) return {text, static_cast<std::size_t>(size)};
            if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) nb::raise_python_error();
            PyErr_Clear();  // lone surrogates, which separate words
            nb::object encoded = nb::steal(PyUnicode_AsEncodedString(item, "utf-8", "surrogatepass"));
            if (!encoded.is_valid()) nb::raise_python_error();
            encoded_.push_back(encoded);
            item = encoded_.back().ptr();
        }
        if (!PyBytes_Check(item)) {
            throw nb::type_error(("texts: expected str or bytes, found " + std::string(nb::inst_name(item).c_str()) +
                                  " in text " + std::to_string(i))
                                     .c_str());
        }
        return {PyBytes_AsString(item), static_cast<std::size_t>(PyBytes_Size(item))};
    }
    nb::object items_;
    std::vector<nb::object> encoded_;
};

NgramExtractor* make_extractor(int column_bits, int min_chars, int max_chars, int min_words, int max_words,
                               nb::handle weights) {
    if (column_bits < 1 || column_bits > kMaxColumnBits) {
        refuse_value("column_bits: expected 1 to " + std::to_string(kMaxColumnBits) + ", found " +
                     std::to_string(column_bits));
    }
    const auto within = [](int shortest, int longest, int most) {
        return (shortest == 0 && longest == 0) || (1 <= shortest && shortest <= longest && longest <= most);
    };
    if (!within(min_chars, max_chars, kMaxChars) || !within(min_words, max_words, kMaxWords)) {
        refuse_value("lengths: expected 1 <= shortest <= longest <= the maximum, or 0 and 0");
    }
    const NgramLengths lengths{min_chars, max_chars, min_words, max_words};
    if (weights.is_none()) return new NgramExtractor(lengths, column_bits, nullptr);
    const FloatArray factors(weights, "weights", {std::size_t{1} << column_bits});
    return new NgramExtractor(lengths, column_bits, factors.data());
}

// Texts that a thread takes at a time.
constexpr std::size_t kTextsPerChunk = 64;

nb::tuple rows_of_texts(const NgramExtractor& extractor, nb::handle texts, int n_threads) {
    const Texts list(texts);
    const std::size_t n = list.views.size();
    const std::size_t n_chunks = chunks_of(n, kTextsPerChunk);
    struct Part {
        std::vector<std::int32_t> columns;
        std::vector<float> values;
    };
    std::vector<Part> parts(n_chunks);
    const NewArray<std::int32_t> starts(n + 1);
    std::size_t n_entries = 0;
    {
        const WithoutGil released;
        parallel_for(n_chunks, n_threads, [&](std::size_t chunk) {
            NgramExtractor::Row row(extractor);
            for (std::size_t i = chunk * kTextsPerChunk; i < std::min((chunk + 1) * kTextsPerChunk, n); ++i) {
                const std::string_view text = list.views[i];
                starts.data()[i + 1] = static_cast<std::int32_t>(extractor.append(text.data(), text.size(), row));
            }
            parts[chunk] = {std::move(row.columns), std::move(row.values)};
        });
        for (const Part& part : parts) n_entries += part.columns.size();
    }
    if (n_entries > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
        refuse_value("texts: too many n-grams for one matrix; pass fewer texts at a time");
    }
    const NewArray<std::int32_t> columns(n_entries);
    const NewArray<float> values(n_entries);
    {
        const WithoutGil released;
        starts.data()[0] = 0;
        for (std::size_t i = 0; i < n; ++i) starts.data()[i + 1] += starts.data()[i];
        std::size_t at = 0;
        for (Part& part : parts) {
            std::copy(part.columns.begin(), part.columns.end(), columns.data() + at);
            std::copy(part.values.begin(), part.values.end(), values.data() + at);
            at += part.columns.size();
            part = {};
        }
    }
    return nb::make_tuple(starts.object, columns.object, values.object);
}

// A hash function of sparse rows or texts, which references the arrays of Python.
class KeptProjection {
public:
    KeptProjection(nb::handle places, nb::handle factors, nb::handle projection, nb::handle steps, nb::handle intercept)
        : places_(places, "places", {kAny}), intercept_(intercept, "intercept", {kAny}),
          table_(projection, "projection", {kAny, intercept_.shape(0)}), steps_(steps, "steps", {intercept_.shape(0)}) {
        const auto n_kept = static_cast<std::int64_t>(table_.shape(0));
        if (n_kept == 0) refuse_value("projection: expected at least one row, found none");
        if (!std::all_of(places_.data(), places_.data() + places_.shape(0),
                         [&](std::int32_t place) { return -1 <= place && place < n_kept; })) {
            refuse_value("places: expected indices of rows of projection, or -1");
        }
        if (!factors.is_none()) factors_.emplace(factors, "factors", Shape{table_.shape(0)});
        projection_ = {places_.data(), factors_ ? factors_->data() : nullptr, nullptr, table_.data(),
                       steps_.data(),  intercept_.data(),                     intercept_.shape(0)};
    }

    nb::object scores(nb::handle indptr, nb::handle indices, nb::handle data, int n_threads) const {
        const SparseArray X(indptr, indices, data, places_.shape(0));
        const NewArray<float> found(X.rows.n, projection_.n_bits);
        without_gil([&] { sparse_scores(X.rows, projection_, found.data(), n_threads); });
        return found.object;
    }

    // Scores are set only if n_candidates is positive.
    nb::tuple predict(const NgramExtractor& extractor, const HammingIndex& index, nb::handle texts,
                      std::size_t n_candidates, int n_threads) const {
        const Texts list(texts);
        if (places_.shape(0) != std::size_t{1} << extractor.column_bits()) {
            refuse_value("places: expected one per column of texts, found " + std::to_string(places_.shape(0)));
        }
        if (n_candidates > 0) require_count("n_candidates", n_candidates, index.n_classes());
        require_width(index, projection_.n_bits);
        const NewArray<std::int64_t> indices(list.views.size());
        const NewArray<std::int32_t> scores(list.views.size()), distances(list.views.size());
        without_gil([&] {
            predict_texts(extractor, projection_, index, list.views, n_candidates,
                          {indices.data(), distances.data(), scores.data()}, n_threads);
        });
        return nb::make_tuple(indices.object, scores.object, distances.object);
    }

private:
    Array<const std::int32_t> places_;
    FloatArray intercept_;
    Array<const std::int8_t> table_;
    FloatArray steps_;
    std::optional<FloatArray> factors_;
    SparseProjection projection_{};
};

// -- Training

template <class Float>
void add_class_sums(nb::handle X, nb::handle labels, nb::handle row_weights, nb::handle sums, int n_threads) {
    const Array<const Float> rows(X, "X", {kAny, kAny});
    const std::size_t n = rows.shape(0), n_features = rows.shape(1);
    const Labels classes(labels, "labels", {n});
    const Doubles factors(row_weights, "row_weights", {n});
    const Array<double> totals(sums, "sums", {kAny, n_features});
    const WithoutGil released;
    class_sums(rows.data(), n, n_features, classes.data(), factors.data(), totals.data(), totals.shape(0), n_threads);
}

#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;  // names itself
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

}  // namespace
}  // namespace bitclass

NB_MODULE(_kernels, m) {
    using namespace bitclass;
    m.doc() = "Compiled kernels of bitclass.";
    // A daemon thread may hold an index when the interpreter exits, which need not be reported.
    nb::set_leak_warnings(false);
    numpy_empty = nb::object(nb::module_::import_("numpy").attr("empty")).release().ptr();

    m.def("compiler", [] { return kCompiler; });
    m.def("available_levels", [] {
        std::vector<std::string> names;
        for (const Level& level : available_levels()) names.emplace_back(level.name);
        return names;
    });
    m.def("current_level", [] { return current_level().name; });
    m.def("_use_level", &use_level);
    m.def("_parallel_for", [](std::size_t n_chunks, int n_threads, nb::callable run) {
        const WithoutGil released;
        parallel_for(n_chunks, n_threads, [&](std::size_t chunk) {
            nb::gil_scoped_acquire acquire;
            run(chunk);
        });
    });

    nb::class_<HammingIndex>(m, "HammingIndex")
        .def(nb::new_(&make_index), nb::arg(), nb::arg().none())
        .def(nb::new_(&make_clustered_index), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg())
        .def("nearest", &nearest)
        .def("top_k", &top_k)
        .def("scores", &scores)
        .def("counts", &counts);
    nb::class_<Int8Projection>(m, "Int8Projection")
        .def(nb::new_(&make_projection), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg())
        .def("encode", &encode_rows)
        .def("nearest", &nearest_of_rows)
        .def("rescored", &rescored_of_rows);
    m.def("pack_signs", &pack_signs);
    m.def("rescore", &rescore_scores);

    m.def("sparse_scores", &scores_of_sparse_rows);
    m.def("sparse_step", &step_of_sparse_rows);
    m.attr("ROWS_PER_CHUNK") = kEncodedRowsPerChunk;
    m.attr("QUERIES_PER_CHUNK") = kQueriesPerChunk;
    m.attr("TEXTS_PER_CHUNK") = kTextsPerChunk;
    m.attr("MAX_CHARS") = kMaxChars;
    m.attr("MAX_WORDS") = kMaxWords;
    nb::class_<NgramExtractor>(m, "NgramExtractor")
        .def(nb::new_(&make_extractor), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
        .def("rows", &rows_of_texts);
    nb::class_<KeptProjection>(m, "SparseProjection")
        .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle>(), nb::arg(), nb::arg().none(),
             nb::arg(), nb::arg(), nb::arg())
        .def("scores", &KeptProjection::scores)
        .def("predict_texts", &KeptProjection::predict);

    m.def("class_sums", [](nb::handle X, nb::handle labels, nb::handle row_weights, nb::handle sums, int n_threads) {
        const auto add =
            AnyArray(X, "X", {kAny, kAny}).is("float32") ? &add_class_sums<float> : &add_class_sums<double>;
        add(X, labels, row_weights, sums, n_threads);
    });

    m.def("standardise", [](nb::handle X, nb::handle rows, nb::handle shift, nb::handle factor, nb::handle out,
                            int n_threads) {
        const auto run =
            AnyArray(X, "X", {kAny, kAny}).is("float32") ? &standardise_rows<float> : &standardise_rows<double>;
        run(X, rows, shift, factor, out, n_threads);
    });

    m.def("product", [](nb::handle a, bool a_transposed, nb::handle b, bool b_transposed, int n_threads) {
        const auto multiply = AnyArray(a, "a", {kAny, kAny}).is("float32") ? &product_of<float> : &product_of<double>;
        return multiply(a, a_transposed, b, b_transposed, n_threads);
    });
    m.def("add_gram", [](nb::handle X, nb::handle gram, int n_threads) {
        const auto add = AnyArray(X, "X", {kAny, kAny}).is("float32") ? &add_gram_of<float> : &add_gram_of<double>;
        add(X, gram, n_threads);
    });
    m.def("cholesky", [](nb::handle matrix, int n_threads) {
        const bool is_float = AnyArray(matrix, "matrix", {kAny, kAny}).is("float32");
        return (is_float ? &factorise<float> : &factorise<double>)(matrix, n_threads);
    });
    m.def("solve_triangular", [](nb::handle lower, nb::handle b, bool transposed, int n_threads) {
        const bool is_float = AnyArray(b, "b", {kAny, kAny}).is("float32");
        (is_float ? &solve_in_place<float> : &solve_in_place<double>)(lower, b, transposed, n_threads);
    });
    m.def("class_gradients", &gradients_of_classes);
    m.def("log_probabilities", &probabilities_of_labels);
    m.def("adam_step", &step_of_adam, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg(), nb::arg().none(), nb::arg());
    bind_paper(m);
}
