// Python's view of the training kernels: shapes and types are checked here, contents by the kernels.
#include <nanobind/nanobind.h>

#include <string>

#include "arrays.hpp"
#include "training.hpp"

namespace nb = nanobind;

namespace bitclass {
namespace {

using Codes = Array<const std::uint8_t>;
using Labels = Array<const std::intptr_t>;
using Doubles = Array<const double>;

PackedRows rows_of(const Codes& codes) { return {codes.data(), codes.shape(0), codes.shape(1)}; }

void require_bits(std::size_t n_bits) {
    if (n_bits >= 1 && n_bits <= kMaxTrainingBits) return;
    throw nb::value_error(("n_bits: expected 1 to " + std::to_string(kMaxTrainingBits) + ", found " +
                           std::to_string(n_bits))
                              .c_str());
}

// ValueError unless the powers exp(log_step * r) have exponents that fit an integer.
void require_log_step(double log_step) {
    constexpr double most = 1000.0;
    if (log_step >= 0.0 && log_step <= most) return;  // a NaN is neither
    throw nb::value_error(("log_step: expected a number from 0 to 1000, found " + std::to_string(log_step)).c_str());
}

// ValueError unless both hold codes of n_bits bits.
void require_code_widths(const Codes& codes, const Codes& weights, std::size_t n_bits) {
    codes.require_length(1, (n_bits + 7) / 8);
    weights.require_length(1, (n_bits + 7) / 8);
}

PairTables tables_of(const Doubles& tables) {
    if (tables.shape(1) % 2 == 0) {
        throw nb::value_error(("tables: expected 2r + 1 columns, found " + std::to_string(tables.shape(1))).c_str());
    }
    const std::size_t n_bits = (tables.shape(1) - 1) / 2;
    require_bits(n_bits);
    return {tables.data(), tables.shape(0), n_bits};
}

void require_sums(const Array<double>& sums, std::size_t n_tables, std::size_t n_classes) {
    sums.require_length(0, 2);
    sums.require_length(1, n_tables);
    sums.require_length(2, n_classes);
    sums.require_length(3, n_classes);
}

void bind_margins(nb::module_& m) {
    m.def(
        "half_margins",
        [](nb::object codes, nb::object weights, nb::object own, nb::object half, int n_threads) {
            const Codes code_array(codes, "codes", 2);
            const Codes weight_array(weights, "weights", 2);
            const Labels own_array(own, "own", 1);
            const Array<std::int16_t> half_array(half, "half", 2);
            weight_array.require_length(1, code_array.shape(1));
            if (code_array.shape(1) > (kMaxTrainingBits + 7) / 8) require_bits(8 * code_array.shape(1));
            own_array.require_length(0, code_array.shape(0));
            half_array.require_length(0, code_array.shape(0));
            half_array.require_length(1, weight_array.shape(0));
            require_apart({&code_array, &weight_array, &own_array, &half_array});
            require_threads(n_threads);
            const WithoutGil released;
            half_margins(rows_of(code_array), rows_of(weight_array), own_array.data(), half_array.data(), n_threads);
        },
        nb::arg("codes"), nb::arg("weights"), nb::arg("own"), nb::arg("half"), nb::arg("n_threads"));
}

void bind_pair_sums(nb::module_& m) {
    m.def(
        "pair_sums",
        [](nb::object codes, nb::object weights, std::size_t bit, nb::object own, nb::object row_weights,
           nb::object tables, nb::object sums, int n_threads) {
            const Codes code_array(codes, "codes", 2);
            const Codes weight_array(weights, "weights", 2);
            const Labels own_array(own, "own", 1);
            const Doubles row_weight_array(row_weights, "row_weights", 1);
            const Doubles table_array(tables, "tables", 2);
            const Array<double> sum_array(sums, "sums", 4);
            const std::size_t n = code_array.shape(0);
            const std::size_t n_classes = weight_array.shape(0);
            own_array.require_length(0, n);
            row_weight_array.require_length(0, n);
            const PairTables pair_tables = tables_of(table_array);
            require_code_widths(code_array, weight_array, pair_tables.n_bits);
            require_sums(sum_array, table_array.shape(0), n_classes);
            if (bit >= pair_tables.n_bits) {
                throw nb::value_error(("bit: expected an index below " + std::to_string(pair_tables.n_bits) +
                                       ", found " + std::to_string(bit))
                                          .c_str());
            }
            require_apart({&code_array, &weight_array, &own_array, &row_weight_array, &table_array, &sum_array});
            require_threads(n_threads);
            const WithoutGil released;
            pair_sums(rows_of(code_array), rows_of(weight_array), bit,
                      {own_array.data(), row_weight_array.data(), n, n_classes}, pair_tables, sum_array.data(),
                      n_threads);
        },
        nb::arg("codes"), nb::arg("weights"), nb::arg("bit"), nb::arg("own"), nb::arg("row_weights"),
        nb::arg("tables"), nb::arg("sums"), nb::arg("n_threads"));
}

void bind_bit_updates(nb::module_& m) {
    m.def(
        "flip_bits",
        [](nb::object H, nb::object g, nb::object w, int n_threads) {
            const Doubles H_array(H, "H", 2);
            const Doubles g_array(g, "g", 1);
            const Array<std::int8_t> w_array(w, "w", 1);
            const std::size_t n_classes = H_array.shape(0);
            H_array.require_length(1, n_classes);
            g_array.require_length(0, n_classes);
            w_array.require_length(0, n_classes);
            require_apart({&H_array, &g_array, &w_array});
            require_threads(n_threads);
            const WithoutGil released;
            return flip_bits(H_array.data(), g_array.data(), w_array.data(), n_classes, n_threads);
        },
        nb::arg("H"), nb::arg("g"), nb::arg("w"), nb::arg("n_threads"));
    m.def(
        "update_codes",
        [](nb::object codes, nb::object weights, nb::object own, nb::object row_weights, std::size_t n_bits,
           nb::object values, double log_step, nb::object new_codes, nb::object log_decreases, int n_threads) {
            const Codes code_array(codes, "codes", 2);
            const Codes weight_array(weights, "weights", 2);
            const Labels own_array(own, "own", 1);
            const Doubles row_weight_array(row_weights, "row_weights", 1);
            const Doubles value_array(values, "values", 1);
            const Array<std::uint8_t> new_code_array(new_codes, "new_codes", 2);
            const Array<double> log_decrease_array(log_decreases, "log_decreases", 1);
            const std::size_t n = code_array.shape(0);
            require_bits(n_bits);
            require_code_widths(code_array, weight_array, n_bits);
            own_array.require_length(0, n);
            row_weight_array.require_length(0, n);
            value_array.require_length(0, 4 * n_bits + 1);
            require_log_step(log_step);
            new_code_array.require_length(0, n);
            new_code_array.require_length(1, code_array.shape(1));
            log_decrease_array.require_length(0, n_bits);
            require_apart({&code_array, &weight_array, &own_array, &row_weight_array, &value_array, &new_code_array,
                           &log_decrease_array});
            require_threads(n_threads);
            const WithoutGil released;
            update_codes({rows_of(code_array), rows_of(weight_array), own_array.data(), row_weight_array.data(), n_bits,
                          value_array.data(), log_step, new_code_array.data(), log_decrease_array.data()},
                         n_threads);
        },
        nb::arg("codes"), nb::arg("weights"), nb::arg("own"), nb::arg("row_weights"), nb::arg("n_bits"),
        nb::arg("values"), nb::arg("log_step"), nb::arg("new_codes"), nb::arg("log_decreases"), nb::arg("n_threads"));
}

template <class Float>
void bind_class_sums(nb::module_& m, const char* name) {
    m.def(
        name,
        [](nb::object x, nb::object labels, nb::object row_weights, nb::object sums, int n_threads) {
            const Array<const Float> x_array(x, "X", 2);
            const Labels label_array(labels, "labels", 1);
            const Doubles row_weight_array(row_weights, "row_weights", 1);
            const Array<double> sum_array(sums, "sums", 2);
            label_array.require_length(0, x_array.shape(0));
            row_weight_array.require_length(0, x_array.shape(0));
            sum_array.require_length(1, x_array.shape(1));
            require_apart({&x_array, &label_array, &row_weight_array, &sum_array});
            require_threads(n_threads);
            const WithoutGil released;
            class_sums(x_array.data(), x_array.shape(0), x_array.shape(1), label_array.data(),
                       row_weight_array.data(), sum_array.data(), sum_array.shape(0), n_threads);
        },
        nb::arg("X"), nb::arg("labels"), nb::arg("row_weights"), nb::arg("sums"), nb::arg("n_threads"));
}

void bind_row_statistics(nb::module_& m) {
    m.def(
        "group_rows",
        [](nb::object labels, nb::object codes, nb::object first, nb::object inverse, int n_threads) {
            const Labels label_array(labels, "labels", 1);
            const Codes code_array(codes, "codes", 2);
            const Array<std::intptr_t> first_array(first, "first", 1);
            const Array<std::intptr_t> inverse_array(inverse, "inverse", 1);
            const std::size_t n = code_array.shape(0);
            label_array.require_length(0, n);
            first_array.require_length(0, n);
            inverse_array.require_length(0, n);
            require_apart({&label_array, &code_array, &first_array, &inverse_array});
            require_threads(n_threads);
            const WithoutGil released;
            return group_rows(label_array.data(), rows_of(code_array), first_array.data(), inverse_array.data(),
                              n_threads);
        },
        nb::arg("labels"), nb::arg("codes"), nb::arg("first"), nb::arg("inverse"), nb::arg("n_threads"));
    bind_class_sums<float>(m, "class_sums_float32");
    bind_class_sums<double>(m, "class_sums_float64");
}

}  // namespace

void bind_training(nb::module_& m) {
    bind_margins(m);
    bind_pair_sums(m);
    bind_bit_updates(m);
    bind_row_statistics(m);
}

}  // namespace bitclass
