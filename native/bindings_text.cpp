#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "ngrams.hpp"
#include "ngrams_codes.hpp"
#include "pool.hpp"
#include "texts.hpp"

namespace bitclass {

Texts::Texts(nb::handle sequence) {
    // A copy, so that nobody takes a text away while the kernels read it.
    items_ = nb::steal(PySequence_Tuple(sequence.ptr()));
    if (!items_.is_valid()) nb::raise_python_error();
    const auto n = static_cast<std::size_t>(PyTuple_Size(items_.ptr()));
    views_.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
        views_.push_back(view(PyTuple_GetItem(items_.ptr(), static_cast<Py_ssize_t>(i)), i));
        if (views_.back().size() > kMaxBytes) {
            throw nb::value_error(("texts: expected at most " + std::to_string(kMaxBytes) + " bytes per text, found " +
                                   std::to_string(views_.back().size()) + " in text " + std::to_string(i))
                                      .c_str());
        }
    }
}

std::string_view Texts::view(PyObject* item, std::size_t i) {
    if (PyUnicode_Check(item)) {
        Py_ssize_t size = 0;
        if (const char* text = PyUnicode_AsUTF8AndSize(item, &size)) return {text, static_cast<std::size_t>(size)};
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) nb::raise_python_error();
        PyErr_Clear();  // lone surrogates, which are no characters and separate words
        nb::object encoded = nb::steal(PyUnicode_AsEncodedString(item, "utf-8", "surrogatepass"));
        if (!encoded.is_valid()) nb::raise_python_error();
        encoded_.push_back(encoded);
        item = encoded_.back().ptr();
    }
    if (!PyBytes_Check(item)) {
        throw nb::type_error(("texts: expected str or bytes, found " + std::string(nb::inst_name(item).c_str()) + " in text " +
                              std::to_string(i))
                                 .c_str());
    }
    return {PyBytes_AsString(item), static_cast<std::size_t>(PyBytes_Size(item))};
}

namespace {

constexpr std::size_t kTextsPerChunk = 64;

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> new_array(std::size_t n) {
    auto values = std::make_unique<T[]>(n);
    nb::capsule owner(values.get(), [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.release(), {n}, owner);
}

void require_lengths(const char* name, int shortest, int longest, int limit) {
    if ((shortest == 0 && longest == 0) || (1 <= shortest && shortest <= longest && longest <= limit)) return;
    throw nb::value_error((std::string(name) + ": expected 1 <= shortest <= longest <= " + std::to_string(limit) +
                           ", or (0, 0) for none, found (" + std::to_string(shortest) + ", " + std::to_string(longest) + ")")
                              .c_str());
}

NgramHasher* make_hasher(int column_bits, int min_chars, int max_chars, int min_words, int max_words,
                         nb::handle weights) {
    if (column_bits < 1 || column_bits > kMaxColumnBits) {
        throw nb::value_error(
            ("column_bits: expected 1 to " + std::to_string(kMaxColumnBits) + ", found " + std::to_string(column_bits)).c_str());
    }
    require_lengths("chars", min_chars, max_chars, kMaxChars);
    require_lengths("words", min_words, max_words, kMaxWords);
    const NgramLengths lengths{min_chars, max_chars, min_words, max_words};
    if (weights.is_none()) return new NgramHasher(lengths, column_bits, nullptr);
    const Array<const float> factors(weights, "weights", 1);
    factors.require_length(0, std::size_t{1} << column_bits);
    if (!std::all_of(factors.data(), factors.data() + factors.shape(0),
                     [](float factor) { return std::isfinite(factor) && factor >= 0; })) {
        throw nb::value_error("weights: expected finite numbers of at least 0");
    }
    return new NgramHasher(lengths, column_bits, factors.data());
}

nb::tuple rows(const NgramHasher& hasher, nb::handle texts, int n_threads) {
    const Texts list(texts);
    require_threads(n_threads);
    const std::size_t n_chunks = chunks_of(list.size(), kTextsPerChunk);
    struct Part {
        std::vector<std::int32_t> columns;
        std::vector<float> values;
    };
    std::vector<Part> parts(n_chunks);
    std::vector<std::size_t> lengths(list.size());
    std::size_t n_entries = 0;
    {
        const WithoutGil released;
        parallel_for(n_chunks, n_threads, [&](std::size_t chunk) {
            NgramHasher::Row row(hasher);
            const std::size_t end = std::min((chunk + 1) * kTextsPerChunk, list.size());
            for (std::size_t i = chunk * kTextsPerChunk; i < end; ++i) {
                lengths[i] = hasher.append(list[i].data(), list[i].size(), row);
            }
            parts[chunk] = {std::move(row.columns), std::move(row.values)};
        });
        for (const Part& part : parts) n_entries += part.columns.size();
    }
    if (n_entries > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
        throw nb::value_error("texts: too many n-grams for one matrix; give fewer texts at a time");
    }
    auto starts = new_array<std::int32_t>(list.size() + 1);
    auto columns = new_array<std::int32_t>(n_entries);
    auto values = new_array<float>(n_entries);
    {
        const WithoutGil released;
        std::int32_t start = 0;
        for (std::size_t i = 0; i < list.size(); ++i) {
            starts.data()[i] = start;
            start += static_cast<std::int32_t>(lengths[i]);
        }
        starts.data()[list.size()] = start;
        std::size_t at = 0;
        for (Part& part : parts) {
            std::copy(part.columns.begin(), part.columns.end(), columns.data() + at);
            std::copy(part.values.begin(), part.values.end(), values.data() + at);
            at += part.columns.size();
            part = {};
        }
    }
    return nb::make_tuple(starts, columns, values);
}

// What predicts from texts: a hasher and a hash function of its columns, whose arrays stay where they are.
class TextPredictor {
public:
    TextPredictor(nb::object hasher, nb::handle places, nb::handle factors, nb::handle projection, nb::handle steps,
                  nb::handle intercept)
        : hasher_(hasher), intercept_(intercept, "intercept", 1) {
        const std::size_t n_columns = std::size_t{1} << this->hasher().column_bits();
        const std::size_t n_bits = intercept_.shape(0);
        if (AnyArray(projection, "projection", 2, false).dtype() == "int8") {
            bytes_.emplace(projection, "projection", 2);
        } else {
            floats_.emplace(projection, "projection", 2);
        }
        const AnyArray& table = bytes_ ? static_cast<const AnyArray&>(*bytes_) : static_cast<const AnyArray&>(*floats_);
        table.require_length(1, n_bits);
        if (places.is_none()) {
            table.require_length(0, n_columns);
        } else {
            places_.emplace(places, "places", 1);
            places_->require_length(0, n_columns);
            const auto n_kept = static_cast<std::int64_t>(table.shape(0));
            if (!std::all_of(places_->data(), places_->data() + n_columns,
                             [&](std::int32_t place) { return -1 <= place && place < n_kept; })) {
                throw nb::value_error("places: expected numbers of rows of projection, or -1");
            }
        }
        if (!factors.is_none()) {
            factors_.emplace(factors, "factors", 1);
            factors_->require_length(0, table.shape(0));
        }
        if (!steps.is_none()) {
            steps_.emplace(steps, "steps", 1);
            steps_->require_length(0, n_bits);
        }
        projection_ = {{places_ ? places_->data() : nullptr, factors_ ? factors_->data() : nullptr},
                       floats_ ? floats_->data() : nullptr,
                       bytes_ ? bytes_->data() : nullptr,
                       steps_ ? steps_->data() : nullptr,
                       intercept_.data(),
                       n_bits};
    }

    void predict(const HammingIndex& index, nb::handle texts, nb::handle scale, std::size_t n_candidates,
                 nb::handle indices, nb::handle scores, nb::handle distances, int n_threads) const {
        const Texts list(texts);
        const Array<const float> steepness(scale, "scale", 1);
        const Array<std::int64_t> found(indices, "indices", 2);
        const Array<std::int32_t> products(scores, "scores", 2);
        const Array<std::int32_t> apart(distances, "distances", 2);
        const std::size_t k = found.shape(1);
        steepness.require_length(0, projection_.n_bits);
        found.require_length(0, list.size());
        for (const AnyArray* array : {static_cast<const AnyArray*>(&products), static_cast<const AnyArray*>(&apart)}) {
            array->require_length(0, list.size());
            array->require_length(1, k);
        }
        if (k < 1 || k > std::max<std::size_t>(n_candidates, 1) || n_candidates > index.n_classes()) {
            throw nb::value_error("n_candidates: expected 1 <= k <= n_candidates <= the number of classes, or 0 and k = 1");
        }
        if (index.n_bytes() != (projection_.n_bits + 7) / 8) {
            throw nb::value_error("index: expected codes of as many bits as the projection has");
        }
        require_apart({&steepness, &found, &products, &apart});
        require_threads(n_threads);
        const WithoutGil released;
        predict_texts(hasher(), projection_, index, list.views(), steepness.data(), n_candidates, k, found.data(),
                      products.data(), apart.data(), n_threads);
    }

private:
    const NgramHasher& hasher() const { return *nb::inst_ptr<NgramHasher>(hasher_); }

    nb::object hasher_;
    Array<const float> intercept_;
    std::optional<Array<const float>> floats_;
    std::optional<Array<const std::int8_t>> bytes_;
    std::optional<Array<const std::int32_t>> places_;
    std::optional<Array<const float>> factors_, steps_;
    SparseProjection projection_{};
};

TextPredictor* make_predictor(nb::object hasher, nb::handle places, nb::handle factors, nb::handle projection,
                              nb::handle steps, nb::handle intercept) {
    if (!nb::isinstance<NgramHasher>(hasher)) throw nb::type_error("hasher: expected an NgramHasher");
    return new TextPredictor(hasher, places, factors, projection, steps, intercept);
}

}  // namespace

void bind_text(nb::module_& m) {
    m.attr("MAX_CHARS") = kMaxChars;
    m.attr("MAX_WORDS") = kMaxWords;
    m.attr("MAX_TEXT_BYTES") = Texts::kMaxBytes;
    nb::class_<NgramHasher>(m, "NgramHasher", "Texts to sparse rows of hashed n-grams.")
        .def(nb::new_(&make_hasher), nb::arg("column_bits"), nb::arg("min_chars"), nb::arg("max_chars"),
             nb::arg("min_words"), nb::arg("max_words"), nb::arg("weights").none())
        .def("rows", &rows, nb::arg("texts"), nb::arg("n_threads"),
             "Row starts, columns and values of the rows of texts, as CSR has them.");
    nb::class_<TextPredictor>(m, "TextPredictor", "Texts to classes in one pass.")
        .def(nb::new_(&make_predictor), nb::arg("hasher"), nb::arg("places").none(), nb::arg("factors").none(),
             nb::arg("projection"), nb::arg("steps").none(), nb::arg("intercept"))
        .def("predict", &TextPredictor::predict, nb::arg("index"), nb::arg("texts"), nb::arg("scale"),
             nb::arg("n_candidates"), nb::arg("indices"), nb::arg("scores"), nb::arg("distances"), nb::arg("n_threads"),
             "Write the nearest class of each text, or the best of the nearest by real-valued codes.");
}

}  // namespace bitclass
