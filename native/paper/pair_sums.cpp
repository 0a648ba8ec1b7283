// The hot loop of the W-step: n * C table lookups per bit.
//
// A task is one class q, one side (sign of the code's bit) and a range of columns. Its rows are added in
// order to sums that no other task touches, so results do not depend on threads or tiles.
#include <algorithm>
#include <vector>

#include "../aligned.hpp"
#include "../dispatch.hpp"
#include "../pool.hpp"
#include "class_runs.hpp"
#include "paper.hpp"

namespace bitclass {
namespace {

// With fewer lookups, waking a second thread costs more than it saves.
constexpr std::size_t kMinLookupsForThreads = 1 << 15;
// Columns per task; fewer if there are so few runs of classes that these alone do not make enough tasks.
constexpr std::size_t kColumnsPerTask = 1024;
constexpr std::size_t kFewRuns = 32;

// Rows of one tile, all of one class and side.
struct TileRows {
    std::size_t rows[kTileRows];
    double weights[kTileRows];
    std::uint16_t y_distances[kTileRows];
    std::size_t n = 0;
    bool unit_weights = true;
};

// Offsets that turn a half margin into the table index of the half margin without the bit: by the sign
// of the bit of class y, the side and the column.
class ColumnBases {
public:
    ColumnBases(const std::int8_t* weight_bits, std::size_t n_classes, std::size_t n_bits)
        : stride_((n_classes + kPieceColumns - 1) / kPieceColumns * kPieceColumns), bases_(4 * stride_) {
        for (const int y_bit : {-1, 1}) {
            for (const int bit : {-1, 1}) {
                std::uint16_t* bases = bases_.data() + place(y_bit, bit);
                for (std::size_t c = 0; c < n_classes; ++c) {
                    const int step = (weight_bits[c] - y_bit) / 2;
                    bases[c] = static_cast<std::uint16_t>(static_cast<int>(n_bits) - step * bit);
                }
            }
        }
    }

    const std::uint16_t* of(int y_bit, int bit) const { return bases_.data() + place(y_bit, bit); }

private:
    std::size_t place(int y_bit, int bit) const { return (y_bit > 0 ? 2 * stride_ : 0) + (bit > 0 ? stride_ : 0); }

    std::size_t stride_;
    std::vector<std::uint16_t> bases_;
};

struct Task {
    ClassRun run;
    int bit;
    std::size_t begin_column;
    std::size_t end_column;
};

std::vector<Task> make_tasks(const std::vector<ClassRun>& runs, std::size_t n_classes) {
    const std::size_t columns_per_task = runs.size() < kFewRuns ? kTileColumns : kColumnsPerTask;
    std::vector<Task> tasks;
    for (const ClassRun& run : runs) {
        for (const int bit : {1, -1}) {
            for (std::size_t column = 0; column < n_classes; column += columns_per_task) {
                tasks.push_back({run, bit, column, std::min(n_classes, column + columns_per_task)});
            }
        }
    }
    return tasks;
}

class PairSummation {
public:
    PairSummation(PackedRows codes, PackedRows weights, const std::int8_t* bits, const std::int8_t* weight_bits,
                  TrainingRows rows, PairTables tables, double* sums)
        : codes_(codes), weights_(weights), n_pieces_(pieces_of(codes.n_bytes)), pieces_(grouped_pieces(weights)),
          bits_(bits), weight_bits_(weight_bits), rows_(rows), tables_(tables), sums_(sums),
          bases_(weight_bits, rows.n_classes, tables.n_bits), loops_(kernels().paper) {
        // Tables are interleaved in pairs; the last of an odd number is paired with zeros.
        const std::size_t length = 2 * tables.n_bits + 1;
        pairs_ = AlignedArray<double>((tables.n_tables + 1) / 2 * 2 * length);
        for (std::size_t k = 0; k < tables.n_tables; ++k) {
            double* const pair = pairs_.data() + k / 2 * 2 * length + k % 2;
            for (std::size_t j = 0; j < length; ++j) pair[2 * j] = tables.values[k * length + j];
        }
    }

    void run(int n_threads) {
        const std::vector<ClassRun> runs = class_runs(rows_.y, rows_.n, rows_.n_classes);
        require_ascending(runs);
        const std::vector<Task> tasks = make_tasks(runs, rows_.n_classes);
        if (rows_.n * rows_.n_classes < kMinLookupsForThreads) n_threads = 1;
        parallel_for(tasks.size(), n_threads, [&](std::size_t i) { do_task(tasks[i]); });
    }

private:
    double* sums_of(const Task& task, std::size_t k) const {
        const std::size_t side = task.bit > 0 ? 0 : 1;
        return sums_ + ((side * tables_.n_tables + k) * rows_.n_classes + task.run.y) * rows_.n_classes;
    }

    void do_task(const Task& task) const {
        // Column y is summed with the others, which costs less than skipping it, and then restored.
        std::vector<double> y_sums(tables_.n_tables);
        for (std::size_t k = 0; k < tables_.n_tables; ++k) y_sums[k] = sums_of(task, k)[task.run.y];
        std::vector<std::uint32_t> row_pieces(kTileRows * n_pieces_);
        TileRows rows;
        for (std::size_t next = task.run.begin; next < task.run.end;) {
            next = take_rows(task, next, rows, row_pieces.data());
            for (std::size_t column = task.begin_column; column < task.end_column; column += kTileColumns) {
                add_tile(task, rows, row_pieces.data(), column, std::min(kTileColumns, task.end_column - column));
            }
        }
        if (task.begin_column <= task.run.y && task.run.y < task.end_column) {
            for (std::size_t k = 0; k < tables_.n_tables; ++k) sums_of(task, k)[task.run.y] = y_sums[k];
        }
    }

    // Collects the next rows of the task's side, at most a tile; returns the row to continue from.
    std::size_t take_rows(const Task& task, std::size_t next, TileRows& rows, std::uint32_t* row_pieces) const {
        std::size_t n = 0;
        for (; next < task.run.end && n < kTileRows; ++next) {
            rows.rows[n] = next;
            n += bits_[next] == task.bit;
        }
        rows.n = n;
        rows.unit_weights = true;
        for (std::size_t i = 0; i < n; ++i) {
            rows.weights[i] = rows_.row_weights[rows.rows[i]];
            rows.unit_weights &= rows.weights[i] == 1.0;
        }
        std::size_t classes[kTileRows];
        std::fill_n(classes, kTileRows, task.run.y);
        loops_.prepare_rows(codes_.codes, codes_.n_bytes, rows.rows, n, weights_.codes, classes, row_pieces,
                            rows.y_distances);
        return next;
    }

    void add_tile(const Task& task, const TileRows& rows, const std::uint32_t* row_pieces, std::size_t column,
                  std::size_t n_columns) const {
        alignas(64) std::uint16_t indices[kTileRows * kTileColumns];
        const std::uint16_t* bases = bases_.of(weight_bits_[task.run.y], task.bit) + column;
        const std::uint16_t limit = static_cast<std::uint16_t>(2 * tables_.n_bits);
        for (std::size_t c = 0; c < n_columns; c += kPieceColumns) {
            loops_.indices_from_codes({pieces_.data() + (column + c) * n_pieces_, n_pieces_, row_pieces, rows.n,
                                       rows.y_distances, bases + c, limit, 2, indices + c, kTileColumns});
        }
        const IndexTile tile{indices, kTileColumns, rows.n, n_columns, rows.unit_weights ? nullptr : rows.weights};
        const double* pairs = pairs_.data();
        for (std::size_t k = 0; k < tables_.n_tables; k += 2, pairs += 2 * (2 * tables_.n_bits + 1)) {
            double none[kTileColumns] = {};
            double* second = k + 1 < tables_.n_tables ? sums_of(task, k + 1) + column : none;
            add_paired_lookups(tile, pairs, sums_of(task, k) + column, second);
        }
    }

    PackedRows codes_;
    PackedRows weights_;
    std::size_t n_pieces_;
    std::vector<std::uint16_t> pieces_;
    const std::int8_t* bits_;
    const std::int8_t* weight_bits_;
    TrainingRows rows_;
    PairTables tables_;
    double* sums_;
    ColumnBases bases_;
    AlignedArray<double> pairs_;
    const PaperKernels& loops_;
};

std::vector<std::int8_t> column_of(PackedRows codes, std::size_t bit) {
    std::vector<std::int8_t> signs(codes.n);
    for (std::size_t i = 0; i < codes.n; ++i) {
        const int set = codes.codes[i * codes.n_bytes + bit / 8] >> bit % 8 & 1;
        signs[i] = static_cast<std::int8_t>(2 * set - 1);
    }
    return signs;
}

}  // namespace

void pair_sums(PackedRows codes, PackedRows weights, std::size_t bit, TrainingRows rows, PairTables tables,
               double* sums, int n_threads) {
    require_padding(codes, tables.n_bits, "codes");
    require_padding(weights, tables.n_bits, "weights");
    const std::vector<std::int8_t> bits = column_of(codes, bit);
    const std::vector<std::int8_t> weight_bits = column_of(weights, bit);
    PairSummation(codes, weights, bits.data(), weight_bits.data(), rows, tables, sums).run(n_threads);
}

}  // namespace bitclass
