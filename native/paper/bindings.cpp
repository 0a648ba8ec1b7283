#include "bindings.hpp"

#include <string>

#include "../arrays.hpp"
#include "../encode.hpp"
#include "paper.hpp"

namespace bitclass {
namespace {

using Codes = Array<const std::uint8_t>;
using Labels = Array<const std::intptr_t>;
using Doubles = Array<const double>;

PackedRows rows_of(const Codes& codes) { return {codes.data(), codes.shape(0), codes.shape(1)}; }

// Bytes per code of n_bits, which must be supported by the kernels.
std::size_t code_width(std::size_t n_bits) {
    if (n_bits < 1 || n_bits > kMaxTrainingBits) {
        refuse_value("n_bits: expected an integer from 1 to " + std::to_string(kMaxTrainingBits) + ", found " +
                     std::to_string(n_bits));
    }
    return packed_width(n_bits);
}

void add_pair_sums(nb::handle codes, nb::handle weights, std::size_t bit, nb::handle y, nb::handle row_weights,
                   nb::handle tables, nb::handle sums, int n_threads) {
    const std::size_t n_bits = AnyArray(tables, "tables", {kAny, kAny}).shape(1) / 2;
    const Codes rows(codes, "codes", {kAny, code_width(n_bits)});
    const Codes classes(weights, "weights", {kAny, packed_width(n_bits)});
    const std::size_t n = rows.shape(0), n_classes = classes.shape(0);
    const Labels labels(y, "y", {n});
    const Doubles factors(row_weights, "row_weights", {n});
    const Doubles values(tables, "tables", {2, 2 * n_bits + 1});
    const Array<double> totals(sums, "sums", {2, 2, n_classes, n_classes});
    if (bit >= n_bits) {
        refuse_value("bit: expected an index below " + std::to_string(n_bits) + ", found " + std::to_string(bit));
    }
    const WithoutGil released;
    pair_sums(rows_of(rows), rows_of(classes), bit, {labels.data(), factors.data(), n, n_classes},
              {values.data(), n_bits}, totals.data(), n_threads);
}

nb::tuple updated_codes(nb::handle codes, nb::handle weights, nb::handle y, nb::handle row_weights,
                        std::size_t n_bits, nb::handle values, double log_step, int n_threads) {
    const std::size_t n_bytes = code_width(n_bits);
    const Codes rows(codes, "codes", {kAny, n_bytes});
    const Codes classes(weights, "weights", {kAny, n_bytes});
    const std::size_t n = rows.shape(0);
    const Labels labels(y, "y", {n});
    const Doubles factors(row_weights, "row_weights", {n});
    const Doubles losses(values, "values", {4 * n_bits + 1});
    // The exponents of exp(log_step * r) must fit an integer. NaN is rejected as well.
    if (!(log_step >= 0.0 && log_step <= 1000.0)) {
        refuse_value("log_step: expected a number from 0 to 1000, found " + std::to_string(log_step));
    }
    const NewArray<std::uint8_t> new_codes(n, n_bytes);
    const NewArray<double> log_decreases(n_bits);
    const CodeUpdate update{rows_of(rows), rows_of(classes), labels.data(),    factors.data(),      n_bits,
                            losses.data(), log_step,         new_codes.data(), log_decreases.data()};
    without_gil([&] { update_codes(update, n_threads); });
    return nb::make_tuple(new_codes.object, log_decreases.object);
}

}  // namespace

void bind_paper(nb::module_& m) {
    m.attr("RELATIVE_TOLERANCE") = kRelativeTolerance;
    m.def("pair_sums", &add_pair_sums);
    m.def("update_codes", &updated_codes);
}

}  // namespace bitclass
