// The sums of the W-step and the B-step, as plain loops over the scores of the search.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "../pool.hpp"
#include "../search.hpp"
#include "../training.hpp"
#include "paper.hpp"

namespace bitclass {
namespace {

// Rows whose scores are computed at a time.
constexpr std::size_t kRowsPerBlock = 64;
// Rows of the B-step per task: its logarithms are summed per task, which must not depend on the number of threads.
constexpr std::size_t kRowsPerTask = 512;
// With fewer lookups, waking a second thread costs more than it saves.
constexpr std::size_t kMinLookupsForThreads = 1 << 15;

void require_padding(PackedRows codes, std::size_t n_bits, const char* name) {
    if (n_bits % 8 == 0) return;
    const std::uint8_t padding = static_cast<std::uint8_t>(0xff << n_bits % 8);
    std::uint8_t found = 0;
    for (std::size_t i = 1; i <= codes.n; ++i) found |= codes.codes[i * codes.n_bytes - 1];
    if ((found & padding) != 0) {
        throw std::invalid_argument(std::string(name) + ": expected zeros in the padding bits, found ones");
    }
}

// -1 or +1
int sign_of(PackedRows codes, std::size_t row, std::size_t bit) {
    return 2 * (codes.codes[row * codes.n_bytes + bit / 8] >> bit % 8 & 1) - 1;
}

// The scores w_c.b of rows [begin, end), (end - begin, C).
class Scores {
public:
    Scores(const HammingIndex& index, PackedRows codes, std::size_t n_bits)
        : index_(index), codes_(codes), n_bits_(n_bits), scores_(kRowsPerBlock * index.n_classes()) {}

    const std::int32_t* of(std::size_t begin, std::size_t end) {
        index_.scores(codes_.codes + begin * codes_.n_bytes, end - begin, n_bits_, scores_.data(), 1);
        return scores_.data();
    }

private:
    const HammingIndex& index_;
    PackedRows codes_;
    std::size_t n_bits_;
    std::vector<std::int32_t> scores_;
};

// Values of both tables, or sums of them.
using Pair = double __attribute__((vector_size(16)));

}  // namespace

void pair_sums(PackedRows codes, PackedRows weights, std::size_t bit, TrainingRows rows, PairTables tables,
               double* sums, int n_threads) {
    require_padding(codes, tables.n_bits, "codes");
    require_padding(weights, tables.n_bits, "weights");
    require_classes(rows.y, rows.n, rows.n_classes, "y");
    std::vector<std::size_t> starts;  // of the rows of each class that has any
    for (std::size_t i = 0; i < rows.n; ++i) {
        if (i > 0 && rows.y[i] < rows.y[i - 1]) {
            throw std::invalid_argument("y: expected ascending class indices, found " + std::to_string(rows.y[i]) +
                                        " after " + std::to_string(rows.y[i - 1]));
        }
        if (i == 0 || rows.y[i] != rows.y[i - 1]) starts.push_back(i);
    }
    starts.push_back(rows.n);
    const std::size_t n_classes = rows.n_classes, length = 2 * tables.n_bits + 1;
    std::vector<Pair> values(length);
    for (std::size_t j = 0; j < length; ++j) values[j] = Pair{tables.values[j], tables.values[length + j]};
    const HammingIndex index(weights.codes, weights.n, weights.n_bytes);
    if (rows.n * n_classes < kMinLookupsForThreads) n_threads = 1;
    // A task adds the rows of one class, in order, to sums that no other task touches.
    parallel_for(starts.size() - 1, n_threads, [&](std::size_t task) {
        const std::size_t q = static_cast<std::size_t>(rows.y[starts[task]]);
        const auto sum_at = [&](std::size_t side, std::size_t table, std::size_t c) -> double& {
            return sums[((side * 2 + table) * n_classes + q) * n_classes + c];
        };
        // Offsets from margins to twice the table entries without the bit, and sums, by the sign of the bit.
        std::vector<std::int32_t> offsets[2];
        std::vector<Pair> totals[2];
        for (std::size_t side = 0; side < 2; ++side) {
            for (std::size_t c = 0; c < n_classes; ++c) {
                const int step = sign_of(weights, c, bit) - sign_of(weights, q, bit);
                offsets[side].push_back(2 * static_cast<int>(tables.n_bits) - (side == 0 ? step : -step));
                totals[side].push_back(Pair{sum_at(side, 0, c), sum_at(side, 1, c)});
            }
        }
        Scores block(index, codes, tables.n_bits);
        for (std::size_t begin = starts[task]; begin < starts[task + 1]; begin += kRowsPerBlock) {
            const std::size_t end = std::min(begin + kRowsPerBlock, starts[task + 1]);
            const std::int32_t* scores = block.of(begin, end);
            for (std::size_t i = begin; i < end; ++i, scores += n_classes) {
                const std::size_t side = sign_of(codes, i, bit) > 0 ? 0 : 1;
                const std::int32_t* offset = offsets[side].data();
                Pair* total = totals[side].data();
                const double weight = rows.row_weights[i];
                const std::int32_t own = scores[q];
                for (std::size_t c = 0; c < n_classes; ++c) {
                    total[c] += weight * values[static_cast<std::uint32_t>(scores[c] - own + offset[c]) / 2];
                }
            }
        }
        for (std::size_t side = 0; side < 2; ++side) {
            for (std::size_t c = 0; c < n_classes; ++c) {
                if (c == q) continue;
                sum_at(side, 0, c) = totals[side][c][0];
                sum_at(side, 1, c) = totals[side][c][1];
            }
        }
    });
}

namespace {

// A sum of positive numbers far outside the range of a double: sum * exp(log_unit).
struct LogSum {
    double sum = 0.0;
    double log_unit = -HUGE_VAL;

    void add(double value, double unit) {
        if (!(value > 0.0)) return;
        if (unit > log_unit) {
            sum *= std::exp(log_unit - unit);
            log_unit = unit;
        }
        sum += unit == log_unit ? value : value * std::exp(unit - log_unit);
    }
    double log() const { return sum > 0.0 ? std::log(sum) + log_unit : -HUGE_VAL; }
};

// The classes whose bit k is +1, and those whose bit k is -1, in order.
class ClassesByBit {
public:
    ClassesByBit(PackedRows weights, std::size_t n_bits) : classes_(2 * n_bits) {
        for (std::size_t k = 0; k < n_bits; ++k) {
            for (std::size_t c = 0; c < weights.n; ++c) {
                classes_[2 * k + (sign_of(weights, c, k) > 0)].push_back(static_cast<std::uint32_t>(c));
            }
        }
    }
    const std::vector<std::uint32_t>& of(std::size_t k, int sign) const { return classes_[2 * k + (sign > 0)]; }

private:
    std::vector<std::vector<std::uint32_t>> classes_;
};

// One row: its half margins to all classes, and the largest of those to other classes if terms are relative to it.
class RowUpdate {
public:
    RowUpdate(const CodeUpdate& update, const ClassesByBit& classes)
        : update_(update), classes_(classes), margins_(update.weights.n) {}

    void run(std::size_t row, const std::int32_t* scores, LogSum* decreases) {
        const std::size_t y = static_cast<std::size_t>(update_.y[row]);
        for (std::size_t c = 0; c < margins_.size(); ++c) {
            margins_[c] = static_cast<std::int16_t>((scores[c] - scores[y]) / 2);
        }
        margins_[y] = static_cast<std::int16_t>(-static_cast<int>(update_.n_bits));  // never the largest
        find_top();
        std::uint8_t* code = update_.new_codes + row * update_.codes.n_bytes;
        std::copy_n(update_.codes.codes + row * update_.codes.n_bytes, update_.codes.n_bytes, code);
        for (std::size_t k = 0; k < update_.n_bits; ++k) {
            const int bit = sign_of(update_.codes, row, k);
            // The loss does not decrease with the margin, so that only a bit that is not the true class's may flip.
            if (bit != sign_of(update_.weights, y, k)) update_bit(row, k, classes_.of(k, bit), code, decreases[k]);
        }
    }

private:
    // A flip lowers the half margins of the classes that share the bit by 2.
    void update_bit(std::size_t row, std::size_t k, const std::vector<std::uint32_t>& sharing, std::uint8_t* code,
                    LogSum& decrease) {
        const double* values = update_.values + 2 * update_.n_bits - top_;
        double present = 0.0, flipped = 0.0;
        for (const std::uint32_t c : sharing) {
            present += values[margins_[c]];
            flipped += values[margins_[c] - 2];
        }
        if (!(flipped < present - kRelativeTolerance * present)) return;
        decrease.add(update_.row_weights[row] * (present - flipped), update_.log_step * top_);
        code[k / 8] = static_cast<std::uint8_t>(code[k / 8] ^ 1u << k % 8);
        for (const std::uint32_t c : sharing) margins_[c] = static_cast<std::int16_t>(margins_[c] - 2);
        find_top();
    }

    void find_top() {
        if (update_.log_step == 0.0) return;
        std::int16_t top = margins_[0];
        for (const std::int16_t margin : margins_) top = std::max(top, margin);
        top_ = top;
    }

    const CodeUpdate& update_;
    const ClassesByBit& classes_;
    std::vector<std::int16_t> margins_;
    std::ptrdiff_t top_ = 0;
};

}  // namespace

void update_codes(const CodeUpdate& update, int n_threads) {
    require_padding(update.codes, update.n_bits, "codes");
    require_padding(update.weights, update.n_bits, "weights");
    require_classes(update.y, update.codes.n, update.weights.n, "y");
    const HammingIndex index(update.weights.codes, update.weights.n, update.weights.n_bytes);
    const ClassesByBit classes(update.weights, update.n_bits);
    const std::size_t n_tasks = chunks_of(update.codes.n, kRowsPerTask);
    std::vector<LogSum> decreases(n_tasks * update.n_bits);
    parallel_for(n_tasks, n_threads, [&](std::size_t task) {
        RowUpdate work(update, classes);
        Scores block(index, update.codes, update.n_bits);
        const std::size_t last = std::min((task + 1) * kRowsPerTask, update.codes.n);
        for (std::size_t begin = task * kRowsPerTask; begin < last; begin += kRowsPerBlock) {
            const std::size_t end = std::min(begin + kRowsPerBlock, last);
            const std::int32_t* scores = block.of(begin, end);
            for (std::size_t row = begin; row < end; ++row, scores += index.n_classes()) {
                work.run(row, scores, decreases.data() + task * update.n_bits);
            }
        }
    });
    for (std::size_t k = 0; k < update.n_bits; ++k) {
        LogSum total;
        for (std::size_t task = 0; task < n_tasks; ++task) {
            const LogSum& part = decreases[task * update.n_bits + k];
            total.add(part.sum, part.log_unit);
        }
        update.log_decreases[k] = total.log();
    }
}

}  // namespace bitclass
