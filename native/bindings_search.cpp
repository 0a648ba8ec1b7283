#include <nanobind/stl/string.h>

#include "arrays.hpp"
#include "search.hpp"

namespace bitclass {
namespace {

struct Found {
    Found(nb::handle indices, nb::handle distances, std::size_t n, int n_dims)
        : indices(indices, "indices", n_dims), distances(distances, "distances", n_dims) {
        this->indices.require_length(0, n);
        this->distances.require_length(0, n);
    }
    Array<std::int64_t> indices;
    Array<std::int32_t> distances;
};

HammingIndex* make_index(nb::handle weights) {
    const Array<const std::uint8_t> packed(weights, "weights", 2);
    const WithoutGil released;
    return new HammingIndex(packed.data(), packed.shape(0), packed.shape(1));
}

HammingIndex* make_clustered_index(nb::handle weights, nb::handle centres, nb::handle clusters, std::size_t n_probe) {
    const Array<const std::uint8_t> packed(weights, "weights", 2);
    const Array<const std::uint8_t> packed_centres(centres, "centres", 2);
    packed_centres.require_length(1, packed.shape(1));
    const Array<const std::int64_t> places(clusters, "clusters", 1);
    places.require_length(0, packed.shape(0));
    const WithoutGil released;
    return new HammingIndex(packed.data(), packed.shape(0), packed.shape(1), packed_centres.data(),
                            packed_centres.shape(0), places.data(), n_probe);
}

void nearest(const HammingIndex& index, nb::handle codes, nb::handle indices, nb::handle distances, int n_threads) {
    const Array<const std::uint8_t> queries(codes, "codes", 2);
    queries.require_length(1, index.n_bytes());
    const Found found(indices, distances, queries.shape(0), 1);
    require_apart({&queries, &found.indices, &found.distances});
    require_threads(n_threads);
    const WithoutGil released;
    index.nearest(queries.data(), queries.shape(0), found.indices.data(), found.distances.data(), n_threads);
}

void top_k(const HammingIndex& index, nb::handle codes, nb::handle indices, nb::handle distances, int n_threads) {
    const Array<const std::uint8_t> queries(codes, "codes", 2);
    queries.require_length(1, index.n_bytes());
    const Found found(indices, distances, queries.shape(0), 2);
    const std::size_t k = found.indices.shape(1);
    found.distances.require_length(1, k);
    if (k < 1 || k > index.n_classes()) {
        throw nb::value_error(("k: expected 1 to " + std::to_string(index.n_classes()) + ", the number of classes, found " +
                               std::to_string(k))
                                  .c_str());
    }
    require_apart({&queries, &found.indices, &found.distances});
    require_threads(n_threads);
    const WithoutGil released;
    index.top_k(queries.data(), queries.shape(0), k, found.indices.data(), found.distances.data(), n_threads);
}

void scores(const HammingIndex& index, nb::handle codes, std::size_t n_bits, nb::handle scores, int n_threads) {
    const Array<const std::uint8_t> queries(codes, "codes", 2);
    queries.require_length(1, index.n_bytes());
    const Array<std::int32_t> products(scores, "scores", 2);
    products.require_length(0, queries.shape(0));
    products.require_length(1, index.n_classes());
    if ((n_bits + 7) / 8 != index.n_bytes()) {
        throw nb::value_error(("n_bits: expected codes of " + std::to_string(index.n_bytes()) + " bytes, found " +
                               std::to_string(n_bits) + " bits")
                                  .c_str());
    }
    require_apart({&queries, &products});
    require_threads(n_threads);
    const WithoutGil released;
    index.scores(queries.data(), queries.shape(0), n_bits, products.data(), n_threads);
}

}  // namespace

void bind_search(nb::module_& m) {
    nb::class_<HammingIndex>(m, "HammingIndex", "Class weights laid out for the scans.")
        .def(nb::new_(&make_index), nb::arg("weights"))
        .def(nb::new_(&make_clustered_index), nb::arg("weights"), nb::arg("centres"), nb::arg("clusters"),
             nb::arg("n_probe"))
        .def("nearest", &nearest, nb::arg("codes"), nb::arg("indices"), nb::arg("distances"), nb::arg("n_threads"),
             "Write the nearest class of each code, and its distance.")
        .def("top_k", &top_k, nb::arg("codes"), nb::arg("indices"), nb::arg("distances"), nb::arg("n_threads"),
             "Write the nearest classes of each code, and their distances; k is the number of columns.")
        .def("scores", &scores, nb::arg("codes"), nb::arg("n_bits"), nb::arg("scores"), nb::arg("n_threads"),
             "Write the inner products of codes and weights, n_bits - 2 * distance.")
        .def_prop_ro("n_classes", &HammingIndex::n_classes)
        .def_prop_ro("n_bytes", &HammingIndex::n_bytes);
}

}  // namespace bitclass
