// The B-step. Rows are independent, so a block of 32 rows of one class is updated bit by bit with its
// margins (C, 32) in the cache, and only classes whose bit differs from that of the rows' class are looked up.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../aligned.hpp"
#include "../dispatch.hpp"
#include "../pool.hpp"
#include "class_runs.hpp"
#include "paper.hpp"

namespace bitclass {
namespace {

// A factor exp(x) as fraction * 2^exponent, with the fraction in [1, 2). It allows sums of positive
// numbers far outside the range of a double, without a logarithm per term.
struct WideFactor {
    explicit WideFactor(double x) {
        exponent = static_cast<std::int64_t>(std::floor(x / kLog2));
        fraction = std::exp(x - static_cast<double>(exponent) * kLog2);
    }

    static constexpr double kLog2 = 0.693147180559945309417232;
    double fraction;
    std::int64_t exponent;
};

// The sum is sum_ * 2^exponent_, with the exponent of the largest term so far.
class LogSum {
public:
    // Adds term * factor; term > 0.
    void add(double term, const WideFactor& factor) {
        int exponent;
        const double fraction = 2.0 * std::frexp(term, &exponent);  // in [1, 2)
        add_scaled(fraction * factor.fraction, exponent - 1 + factor.exponent);
    }

    void add(const LogSum& other) {
        if (other.sum_ > 0.0) add_scaled(other.sum_, other.exponent_);
    }

    double log() const {
        if (!(sum_ > 0.0)) return -HUGE_VAL;
        return std::log(sum_) + static_cast<double>(exponent_) * WideFactor::kLog2;
    }

private:
    // 2^exponent for exponent <= 0, or 0 if it is negligible. Built from its bits, because std::ldexp makes the B-step
    // with few classes 5% slower.
    static double power(std::int64_t exponent) {
        if (exponent < -1000) return 0.0;
        const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
        double value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }

    void add_scaled(double value, std::int64_t exponent) {
        if (exponent > exponent_) {
            sum_ = sum_ > 0.0 ? sum_ * power(exponent_ - exponent) : 0.0;
            exponent_ = exponent;
        }
        sum_ += value * power(exponent - exponent_);
    }

    double sum_ = 0.0;
    std::int64_t exponent_ = INT64_MIN / 4;
};

constexpr std::size_t kClassesPerTile = 64;
constexpr std::size_t kMaxTasks = 512;
constexpr std::size_t kMinBlocksPerTask = 4;

// For each bit, the classes in which it is set, in order, then those in which it is not, in order.
class ClassesByBit {
public:
    ClassesByBit(PackedRows weights, std::size_t n_bits)
        : n_classes_(weights.n), classes_(n_bits * weights.n), n_set_(n_bits) {
        for (std::size_t k = 0; k < n_bits; ++k) {
            const auto is_set = [&](std::size_t c) { return weights.codes[c * weights.n_bytes + k / 8] >> k % 8 & 1; };
            for (std::size_t c = 0; c < n_classes_; ++c) n_set_[k] += static_cast<std::size_t>(is_set(c));
            std::uint32_t* set = classes_.data() + k * n_classes_;
            std::uint32_t* unset = set + n_set_[k];
            for (std::size_t c = 0; c < n_classes_; ++c) *(is_set(c) ? set : unset)++ = static_cast<std::uint32_t>(c);
        }
    }

    const std::uint32_t* begin(std::size_t k, bool value) const {
        return classes_.data() + k * n_classes_ + (value ? 0 : n_set_[k]);
    }
    std::size_t size(std::size_t k, bool value) const { return value ? n_set_[k] : n_classes_ - n_set_[k]; }

private:
    std::size_t n_classes_;
    std::vector<std::uint32_t> classes_;
    std::vector<std::size_t> n_set_;
};

// Tables shared by all blocks.
struct SharedTables {
    explicit SharedTables(const CodeUpdate& update)
        : classes(update.weights, update.n_bits), weight_pieces(doubled_pieces(update.weights)),
          no_row_base(std::max<std::size_t>(update.weights.n, 1)), pairs(2 * (4 * update.n_bits - 1)),
          loops(kernels().paper) {
        for (std::size_t j = 0; j < pairs.size() / 2; ++j) {
            pairs[2 * j] = update.values[j];
            pairs[2 * j + 1] = update.values[j + 2];
        }
        const std::ptrdiff_t n_bits = static_cast<std::ptrdiff_t>(update.n_bits);
        for (std::ptrdiff_t top = -n_bits; top <= n_bits; ++top) {
            growth.emplace_back(update.log_step * static_cast<double>(top));
        }
    }

    ClassesByBit classes;
    std::vector<std::uint32_t> weight_pieces;
    std::vector<std::uint16_t> no_row_base;
    AlignedArray<double> pairs;      // entry j: the values at j and j + 2, as flipping a bit moves a half margin by 2
    std::vector<WideFactor> growth;  // exp(log_step * top), top from -r to r
    const PaperKernels& loops;
};

class BlockUpdate {
public:
    BlockUpdate(const CodeUpdate& update, const SharedTables& shared)
        : update_(update), shared_(shared), n_bytes_(update.codes.n_bytes), n_pieces_(pieces_of(n_bytes_)),
          margins_(update.weights.n * kLanes), columns_(2 * n_pieces_ * kLanes), pieces_(n_pieces_ * kLanes) {}

    // A block has at most kLanes rows.
    void run(const ClassRun& block, LogSum* decreases) {
        load(block);
        for (std::size_t k = 0; k < update_.n_bits; ++k) update_bit(block, k, decreases[k]);
        store(block);
    }

private:
    void load(const ClassRun& block) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            // Unused lanes repeat the first row; their results are never read.
            const std::size_t row = block.begin + lane < block.end ? block.begin + lane : block.begin;
            row_weights_[lane] = block.begin + lane < block.end ? update_.row_weights[row] : 0.0;
            for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
                columns_[byte * kLanes + lane] = update_.codes.codes[row * n_bytes_ + byte];
            }
        }
        for (std::size_t piece = 0; piece < n_pieces_; ++piece) {
            const std::uint8_t* low = columns_.data() + 2 * piece * kLanes;
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                pieces_[piece * kLanes + lane] = static_cast<std::uint16_t>(low[lane] | low[kLanes + lane] << 8);
            }
        }
        // First minus the distance to class y, from which the margins to all classes follow.
        std::uint16_t y_distances[kLanes] = {};
        std::uint16_t y_margins[kLanes];
        CodeTile tile{pieces_.data(),
                      n_pieces_,
                      shared_.weight_pieces.data() + block.y * n_pieces_,
                      1,
                      shared_.no_row_base.data(),
                      y_distances,
                      0xffff,
                      1,
                      y_margins,
                      kLanes};
        shared_.loops.indices_from_codes(tile);
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            y_distances[lane] = static_cast<std::uint16_t>(-y_margins[lane]);
        }
        tile.rows = shared_.weight_pieces.data();
        tile.n_rows = update_.weights.n;
        tile.out = reinterpret_cast<std::uint16_t*>(margins_.data());
        shared_.loops.indices_from_codes(tile);
        // Class y must not be the largest margin. Its bit never differs from itself, so it is never looked up.
        const std::int16_t lowest = static_cast<std::int16_t>(-static_cast<int>(update_.n_bits));
        std::fill_n(margins_.data() + block.y * kLanes, kLanes, lowest);
        std::fill_n(top_, kLanes, std::int16_t{0});
        find_top();
    }

    void find_top() {
        if (update_.log_step != 0.0) shared_.loops.block_top(margins_.data(), update_.weights.n, top_);
    }

    void update_bit(const ClassRun& block, std::size_t k, LogSum& decrease) {
        std::uint8_t* column = columns_.data() + k / 8 * kLanes;
        const bool y_bit = (update_.weights.codes[block.y * n_bytes_ + k / 8] >> k % 8 & 1) != 0;
        const std::uint32_t* others = shared_.classes.begin(k, !y_bit);
        const std::size_t n_others = shared_.classes.size(k, !y_bit);

        // If the bit of a row agrees with that of its class, a flip raises the margins by 2: the pair at an
        // index is (present, flipped). Otherwise it lowers them: the pair at index - 2 is (flipped, present).
        std::uint8_t agrees[kLanes];
        std::int16_t lane_base[kLanes];
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            agrees[lane] = (column[lane] >> k % 8 & 1) == static_cast<int>(y_bit);
            lane_base[lane] =
                static_cast<std::int16_t>(2 * static_cast<int>(update_.n_bits) - top_[lane] - 2 + 2 * agrees[lane]);
        }
        double sums[2][kLanes] = {};
        sum_losses(others, n_others, lane_base, block.end - block.begin, sums[0], sums[1]);

        double less[kLanes];
        std::int16_t change[kLanes];
        bool better[kLanes];
        const std::size_t n_rows = block.end - block.begin;
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            const double present = sums[1 - agrees[lane]][lane];
            const double flipped = sums[agrees[lane]][lane];
            better[lane] = flipped < present - kRelativeTolerance * present;
            less[lane] = row_weights_[lane] * (present - flipped);
            change[lane] = static_cast<std::int16_t>(better[lane] * (4 * agrees[lane] - 2));
            column[lane] = static_cast<std::uint8_t>(column[lane] ^ better[lane] << k % 8);
        }
        std::uint32_t flips = 0;
        for (std::size_t lane = 0; lane < n_rows; ++lane) flips |= std::uint32_t{better[lane]} << lane;
        if (flips == 0) return;
        for (; flips != 0; flips &= flips - 1) {
            const int lane = __builtin_ctz(flips);
            if (less[lane] > 0.0) decrease.add(less[lane], growth_at(top_[lane]));
        }
        shared_.loops.block_shift(margins_.data(), others, n_others, change);
        find_top();
    }

    const WideFactor& growth_at(int top) const {
        return shared_.growth[static_cast<std::size_t>(top + static_cast<int>(update_.n_bits))];
    }

    void sum_losses(const std::uint32_t* classes, std::size_t n_classes, const std::int16_t* lane_base,
                    std::size_t n_rows, double* first_sums, double* second_sums) const {
        std::uint16_t indices[kClassesPerTile * kLanes];
        const std::uint16_t limit = static_cast<std::uint16_t>(4 * update_.n_bits - 2);
        for (std::size_t begin = 0; begin < n_classes; begin += kClassesPerTile) {
            const std::size_t n = std::min(kClassesPerTile, n_classes - begin);
            shared_.loops.block_indices(margins_.data(), classes + begin, n, lane_base, limit, indices);
            add_paired_lookups({indices, kLanes, n, n_rows, nullptr}, shared_.pairs.data(), first_sums, second_sums);
        }
    }

    void store(const ClassRun& block) const {
        for (std::size_t i = block.begin; i < block.end; ++i) {
            for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
                update_.new_codes[i * n_bytes_ + byte] = columns_[byte * kLanes + i - block.begin];
            }
        }
    }

    const CodeUpdate& update_;
    const SharedTables& shared_;
    std::size_t n_bytes_;
    std::size_t n_pieces_;
    AlignedArray<std::int16_t> margins_;  // (C, kLanes), a cache line per class
    std::vector<std::uint8_t> columns_;   // (bytes, kLanes), an even number of bytes
    std::vector<std::uint16_t> pieces_;   // (n_pieces, kLanes)
    double row_weights_[kLanes];
    std::int16_t top_[kLanes];
};

}  // namespace

void update_codes(const CodeUpdate& update, int n_threads) {
    require_padding(update.codes, update.n_bits, "codes");
    require_padding(update.weights, update.n_bits, "weights");
    std::vector<ClassRun> blocks;
    for (const ClassRun& run : class_runs(update.y, update.codes.n, update.weights.n)) {
        for (std::size_t begin = run.begin; begin < run.end; begin += kLanes) {
            blocks.push_back({run.y, begin, std::min(run.end, begin + kLanes)});
        }
    }
    const SharedTables shared(update);
    // The logarithms are summed per task, so the tasks must not depend on the number of threads.
    const std::size_t blocks_per_task = std::max(kMinBlocksPerTask, chunks_of(blocks.size(), kMaxTasks));
    const std::size_t n_tasks = chunks_of(blocks.size(), blocks_per_task);
    std::vector<LogSum> decreases(n_tasks * update.n_bits);
    parallel_for(n_tasks, n_threads, [&](std::size_t task) {
        BlockUpdate work(update, shared);
        const std::size_t end = std::min(blocks.size(), (task + 1) * blocks_per_task);
        for (std::size_t i = task * blocks_per_task; i < end; ++i) {
            work.run(blocks[i], decreases.data() + task * update.n_bits);
        }
    });
    for (std::size_t k = 0; k < update.n_bits; ++k) {
        LogSum total;
        for (std::size_t task = 0; task < n_tasks; ++task) total.add(decreases[task * update.n_bits + k]);
        update.log_decreases[k] = total.log();
    }
}

}  // namespace bitclass
