#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "arrays.hpp"
#include "encode.hpp"
#include "search.hpp"

namespace bitclass {
namespace {

// Rows of features, read where they are: only the elements of a row must lie side by side.
class FeatureArray : public AnyArray {
public:
    FeatureArray(nb::handle object, std::size_t n_features) : AnyArray(object, "X", 2, false) {
        require_length(1, n_features);
        features_ = {pointer(), type(), shape(0), shape(1), stride(0)};
        const std::size_t size = dtype() == "float16" ? 2 : dtype() == "float32" ? 4 : 8;
        const bool aligned = aligned_to(size) && stride(0) % static_cast<std::ptrdiff_t>(size) == 0;
        const bool side_by_side = stride(1) == static_cast<std::ptrdiff_t>(size) || shape(1) <= 1;
        if (shape(0) > 0 && !(aligned && side_by_side)) refuse_layout("aligned rows of adjacent features", aligned);
    }
    const Features& features() const { return features_; }

private:
    Features::Type type() const {
        if (dtype() == "float16") return Features::Type::float16;
        if (dtype() == "float32") return Features::Type::float32;
        if (dtype() == "float64") return Features::Type::float64;
        refuse_type("float16, float32 or float64");
    }
    Features features_{};
};

template <class Float>
std::size_t pack_signs_of(nb::handle scores, nb::handle intercept, nb::handle codes, int n_threads) {
    const Array<const Float> values(scores, "scores", 2);
    const Array<const Float> shift(intercept, "intercept", 1);
    const Array<std::uint8_t> bits(codes, "codes", 2);
    shift.require_length(0, values.shape(1));
    bits.require_length(0, values.shape(0));
    bits.require_length(1, packed_width(values.shape(1)));
    require_apart({&values, &shift, &bits});
    require_threads(n_threads);
    const WithoutGil released;
    return pack_signs(values.data(), values.shape(0), values.shape(1), shift.data(), bits.data(), n_threads);
}

void widen_rows(nb::handle X, nb::handle wide, int n_threads) {
    const Array<float> out(wide, "wide", 2);
    const FeatureArray halves(X, out.shape(1));
    if (halves.dtype() != "float16") halves.refuse_type("float16");
    out.require_length(0, halves.shape(0));
    require_apart({&out, &halves});
    require_threads(n_threads);
    const WithoutGil released;
    widen(halves.features(), out.data(), n_threads);
}

Int8Projection* make_projection(nb::handle weights, nb::handle thresholds, nb::handle centre,
                                nb::handle inverse_scale, nb::handle steps) {
    const Array<const std::int8_t> quantised(weights, "weights", 2);
    const Array<const double> limits(thresholds, "thresholds", 1);
    const Array<const double> units(steps, "steps", 1);
    limits.require_length(0, quantised.shape(1));
    units.require_length(0, quantised.shape(1));
    std::optional<Array<const float>> middle, factors;
    if (centre.is_none() != inverse_scale.is_none()) {
        throw nb::value_error("centre: expected both centre and inverse_scale, or neither");
    }
    if (!centre.is_none()) {
        middle.emplace(centre, "centre", 1);
        factors.emplace(inverse_scale, "inverse_scale", 1);
        middle->require_length(0, quantised.shape(0));
        factors->require_length(0, quantised.shape(0));
    }
    return new Int8Projection(quantised.data(), quantised.shape(0), quantised.shape(1), limits.data(),
                              units.data(), middle ? middle->data() : nullptr, factors ? factors->data() : nullptr);
}

std::size_t encode(const Int8Projection& projection, nb::handle X, nb::handle codes, int n_threads) {
    const FeatureArray rows(X, projection.n_features());
    const Array<std::uint8_t> bits(codes, "codes", 2);
    bits.require_length(0, rows.shape(0));
    bits.require_length(1, packed_width(projection.n_bits()));
    require_apart({&rows, &bits});
    require_threads(n_threads);
    const WithoutGil released;
    return projection.encode(rows.features(), bits.data(), n_threads);
}

void require_width(const HammingIndex& index, std::size_t n_bits) {
    if (index.n_bytes() == packed_width(n_bits)) return;
    throw nb::value_error(("index: expected " + std::to_string(packed_width(n_bits)) +
                           " bytes per class, as the codes have, found " + std::to_string(index.n_bytes()))
                              .c_str());
}

// What rescoring writes: n rows of the k best, and the scale of tanh, checked.
struct Rescored {
    Rescored(const HammingIndex& index, std::size_t n, std::size_t n_bits, nb::handle scale, std::size_t n_candidates,
             nb::handle indices, nb::handle scores, nb::handle distances)
        : scale(scale, "scale", 1),
          indices(indices, "indices", 2),
          scores(scores, "scores", 2),
          distances(distances, "distances", 2) {
        require_width(index, n_bits);
        this->scale.require_length(0, n_bits);
        this->indices.require_length(0, n);
        for (const AnyArray* array : {static_cast<const AnyArray*>(&this->scores), static_cast<const AnyArray*>(&this->distances)}) {
            array->require_length(0, n);
            array->require_length(1, k());
        }
        if (k() < 1 || k() > n_candidates || n_candidates > index.n_classes()) {
            throw nb::value_error("n_candidates: expected 1 <= k <= n_candidates <= the number of classes");
        }
    }
    std::size_t k() const { return indices.shape(1); }
    Array<const float> scale;
    Array<std::int64_t> indices;
    Array<std::int32_t> scores;
    Array<std::int32_t> distances;
};

std::size_t predict_rescored_rows(const Int8Projection& projection, const HammingIndex& index, nb::handle X,
                                  nb::handle scale, std::size_t n_candidates, nb::handle indices, nb::handle scores,
                                  nb::handle distances, int n_threads) {
    const FeatureArray rows(X, projection.n_features());
    const Rescored out(index, rows.shape(0), projection.n_bits(), scale, n_candidates, indices, scores, distances);
    require_apart({&rows, &out.scale, &out.indices, &out.scores, &out.distances});
    require_threads(n_threads);
    const WithoutGil released;
    return predict_rescored(projection, index, rows.features(), out.scale.data(), n_candidates, out.k(),
                            out.indices.data(), out.scores.data(), out.distances.data(), n_threads);
}

template <class Float>
std::size_t rescore_of(const HammingIndex& index, nb::handle values, nb::handle intercept, nb::handle scale,
                       std::size_t n_candidates, nb::handle indices, nb::handle scores, nb::handle distances,
                       int n_threads) {
    const Array<const Float> rows(values, "values", 2);
    const Array<const Float> shift(intercept, "intercept", 1);
    shift.require_length(0, rows.shape(1));
    const Rescored out(index, rows.shape(0), rows.shape(1), scale, n_candidates, indices, scores, distances);
    require_apart({&rows, &shift, &out.scale, &out.indices, &out.scores, &out.distances});
    require_threads(n_threads);
    const WithoutGil released;
    return rescore(rows.data(), rows.shape(0), rows.shape(1), shift.data(), index, out.scale.data(), n_candidates,
                   out.k(), out.indices.data(), out.scores.data(), out.distances.data(), n_threads);
}

std::size_t predict_rows(const Int8Projection& projection, const HammingIndex& index, nb::handle X,
                         nb::handle indices, nb::handle distances, int n_threads) {
    const FeatureArray rows(X, projection.n_features());
    const Array<std::int64_t> found(indices, "indices", 1);
    const Array<std::int32_t> how_far(distances, "distances", 1);
    found.require_length(0, rows.shape(0));
    how_far.require_length(0, rows.shape(0));
    require_width(index, projection.n_bits());
    require_apart({&rows, &found, &how_far});
    require_threads(n_threads);
    const WithoutGil released;
    return predict(projection, index, rows.features(), found.data(), how_far.data(), n_threads);
}

}  // namespace

void bind_encode(nb::module_& m) {
    m.def("pack_signs_float32", &pack_signs_of<float>, nb::arg("scores"), nb::arg("intercept"), nb::arg("codes"),
          nb::arg("n_threads"), "Write the bits of scores + intercept >= 0; returns the first row that is not finite, or n.");
    m.def("pack_signs_float64", &pack_signs_of<double>, nb::arg("scores"), nb::arg("intercept"), nb::arg("codes"),
          nb::arg("n_threads"), "Write the bits of scores + intercept >= 0; returns the first row that is not finite, or n.");
    m.def("widen", &widen_rows, nb::arg("X"), nb::arg("wide"), nb::arg("n_threads"),
          "Write rows of half floats as float32.");
    m.def("rescore_float32", &rescore_of<float>, nb::arg("index"), nb::arg("values"), nb::arg("intercept"),
          nb::arg("scale"), nb::arg("n_candidates"), nb::arg("indices"), nb::arg("scores"), nb::arg("distances"),
          nb::arg("n_threads"), "predict_rescored, from X @ projection.");
    m.def("rescore_float64", &rescore_of<double>, nb::arg("index"), nb::arg("values"), nb::arg("intercept"),
          nb::arg("scale"), nb::arg("n_candidates"), nb::arg("indices"), nb::arg("scores"), nb::arg("distances"),
          nb::arg("n_threads"), "predict_rescored, from X @ projection.");
    nb::class_<Int8Projection>(m, "Int8Projection", "A projection quantised to int8, laid out for the kernels.")
        .def(nb::new_(&make_projection), nb::arg("weights"), nb::arg("thresholds"), nb::arg("centre").none(),
             nb::arg("inverse_scale").none(), nb::arg("steps"))
        .def("predict_rescored", &predict_rescored_rows, nb::arg("index"), nb::arg("X"), nb::arg("scale"),
             nb::arg("n_candidates"), nb::arg("indices"), nb::arg("scores"), nb::arg("distances"), nb::arg("n_threads"),
             "Write the best of the nearest classes of each row, by real-valued codes; returns as encode.")
        .def("encode", &encode, nb::arg("X"), nb::arg("codes"), nb::arg("n_threads"), "Write the codes of rows; returns the first row that is not finite in float32, or n.")
        .def("predict", &predict_rows, nb::arg("index"), nb::arg("X"), nb::arg("indices"), nb::arg("distances"),
             nb::arg("n_threads"), "Write the nearest class of each row, and its distance; returns as encode.");
}

}  // namespace bitclass
