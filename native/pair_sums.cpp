// The hot loop of the W-step: n * C table look-ups a bit.
//
// A task is one class q, one side (sign of the code's bit) and a range of columns: its rows are added
// in order into sums that no other task touches, so neither threads nor tiles change a bit of them.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "aligned.hpp"
#include "class_runs.hpp"
#include "lookup_sums.hpp"
#include "pool.hpp"
#include "tiles.hpp"
#include "training.hpp"

namespace bitclass {
namespace {

// Below this many look-ups waking a second thread costs more than it saves.
constexpr std::size_t kLookupsWorthAThread = 1 << 15;
// Columns of a task, where the classes alone make tasks enough, and where they do not.
constexpr std::size_t kColumnsATask = 1024;
constexpr std::size_t kFewRuns = 32;
// Half margins of a cache line.
constexpr std::size_t kColumnsALine = 32;

// Rows of one tile: those of one class and side.
struct TileRows {
    std::size_t rows[kTileRows];
    double weights[kTileRows];
    std::size_t n = 0;
    bool unit_weights = true;
};

// Where the tiles of indices come from: the table of half margins.
struct HalfTable {
    const std::int16_t* half;
    std::size_t n_classes;

    class Reader {
    public:
        Reader(const HalfTable& table, const TileKernels& kernels) : table_(table), kernels_(kernels) {}

        void start(const TileRows&, std::size_t) {}

        // Rows of one side lie at distances no processor foresees.
        void prefetch(const TileRows& rows, std::size_t column, std::size_t end_column) const {
            const std::size_t end = std::min(column + kTileColumns, end_column);
            for (std::size_t i = 0; i < rows.n; ++i) {
                const std::int16_t* half = table_.half + rows.rows[i] * table_.n_classes;
                for (std::size_t c = column; c < end; c += kColumnsALine) __builtin_prefetch(half + c);
                __builtin_prefetch(half + end - 1);
            }
        }

        // Returns false where a half margin lies outside the tables.
        bool fill(const TileRows& rows, std::size_t column, std::size_t n_columns, const std::uint16_t* column_base,
                  std::uint16_t limit, std::uint16_t scale, std::uint16_t* out) {
            return !kernels_.indices_from_half({table_.half + column, table_.n_classes, rows.rows, rows.n, n_columns,
                                                column_base, limit, scale, out, kTileColumns});
        }

    private:
        const HalfTable& table_;
        const TileKernels& kernels_;
    };
};

// Where the tiles of indices come from: Hamming distances, counted anew.
struct CodeTable {
    PackedRows codes;
    PackedRows weights;
    std::vector<std::uint16_t> pieces;

    class Reader {
    public:
        Reader(const CodeTable& table, const TileKernels& kernels)
            : table_(table), kernels_(kernels), n_pieces_(pieces_of(table.codes.n_bytes)),
              row_pieces_(kTileRows * n_pieces_) {}

        void start(const TileRows& rows, std::size_t own) {
            std::size_t classes[kTileRows];
            std::fill_n(classes, kTileRows, own);
            kernels_.prepare_rows(table_.codes.codes, table_.codes.n_bytes, rows.rows, rows.n, table_.weights.codes,
                                  classes, row_pieces_.data(), own_distances_);
        }

        void prefetch(const TileRows&, std::size_t, std::size_t) const {}

        bool fill(const TileRows& rows, std::size_t column, std::size_t n_columns, const std::uint16_t* column_base,
                  std::uint16_t limit, std::uint16_t scale, std::uint16_t* out) {
            for (std::size_t c = 0; c < n_columns; c += kPieceColumns) {
                kernels_.indices_from_codes({table_.pieces.data() + (column + c) * n_pieces_, n_pieces_,
                                             row_pieces_.data(), rows.n, own_distances_, column_base + c, limit, scale,
                                             out + c, kTileColumns});
            }
            return true;
        }

    private:
        const CodeTable& table_;
        const TileKernels& kernels_;
        std::size_t n_pieces_;
        std::vector<std::uint32_t> row_pieces_;
        std::uint16_t own_distances_[kTileRows];
    };
};

// One or two tables that are looked up together.
struct TablePass {
    std::size_t first;
    std::size_t width;
    const double* values;  // interleaved where there are two
};

// Tables two by two, interleaved, and the last alone where their number is odd.
class PairedTables {
public:
    explicit PairedTables(PairTables tables) : pairs_(tables.n_tables / 2 * 2 * (2 * tables.n_bits + 1)) {
        const std::size_t length = 2 * tables.n_bits + 1;
        double* pairs = pairs_.data();
        for (std::size_t k = 0; k < tables.n_tables; k += 2) {
            const double* values = tables.values + k * length;
            if (k + 1 == tables.n_tables) {
                passes.push_back({k, 1, values});
                break;
            }
            for (std::size_t j = 0; j < length; ++j) {
                pairs[2 * j] = values[j];
                pairs[2 * j + 1] = values[length + j];
            }
            passes.push_back({k, 2, pairs});
            pairs += 2 * length;
        }
    }

    std::vector<TablePass> passes;

private:
    AlignedArray<double> pairs_;
};

// Added to a half margin, takes the bit out of it and gives the index in the tables: by the sign of
// the own class's bit, the side and the column.
class ColumnBases {
public:
    ColumnBases(const std::int8_t* weight_bits, std::size_t n_classes, std::size_t n_bits)
        : stride_((n_classes + kPieceColumns - 1) / kPieceColumns * kPieceColumns), bases_(4 * stride_) {
        for (const int own_bit : {-1, 1}) {
            for (const int bit : {-1, 1}) {
                std::uint16_t* bases = bases_.data() + place(own_bit, bit);
                for (std::size_t c = 0; c < n_classes; ++c) {
                    const int step = (weight_bits[c] - own_bit) / 2;
                    bases[c] = static_cast<std::uint16_t>(static_cast<int>(n_bits) - step * bit);
                }
            }
        }
    }

    const std::uint16_t* of(int own_bit, int bit) const { return bases_.data() + place(own_bit, bit); }

private:
    std::size_t place(int own_bit, int bit) const {
        return (own_bit > 0 ? 2 * stride_ : 0) + (bit > 0 ? stride_ : 0);
    }

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
    const std::size_t columns_a_task = runs.size() < kFewRuns ? kTileColumns : kColumnsATask;
    std::vector<Task> tasks;
    for (const ClassRun& run : runs) {
        for (const int bit : {1, -1}) {
            for (std::size_t column = 0; column < n_classes; column += columns_a_task) {
                tasks.push_back({run, bit, column, std::min(n_classes, column + columns_a_task)});
            }
        }
    }
    return tasks;
}

template <class Table>
class PairSummation {
public:
    PairSummation(const Table& table, const std::int8_t* bits, const std::int8_t* weight_bits, TrainingRows rows,
                  PairTables tables, double* sums)
        : table_(table), bits_(bits), weight_bits_(weight_bits), rows_(rows), tables_(tables), sums_(sums),
          bases_(weight_bits, rows.n_classes, tables.n_bits), paired_(tables), kernels_(tile_kernels()) {}

    void run(int n_threads) {
        const std::vector<ClassRun> runs = class_runs(rows_.own, rows_.n, rows_.n_classes);
        require_ascending(runs);
        const std::vector<Task> tasks = make_tasks(runs, rows_.n_classes);
        if (rows_.n * rows_.n_classes < kLookupsWorthAThread) n_threads = 1;
        parallel_for(tasks.size(), n_threads, [&](std::size_t i) { do_task(tasks[i]); });
    }

private:
    double* sums_of(const Task& task, std::size_t k) const {
        const std::size_t side = task.bit > 0 ? 0 : 1;
        return sums_ + ((side * tables_.n_tables + k) * rows_.n_classes + task.run.own) * rows_.n_classes;
    }

    void do_task(const Task& task) {
        // The own column is summed with the others, which costs less than going around it, and then
        // put back as it was.
        std::vector<double> own_sums(tables_.n_tables);
        for (std::size_t k = 0; k < tables_.n_tables; ++k) own_sums[k] = sums_of(task, k)[task.run.own];
        typename Table::Reader reader(table_, kernels_);
        TileRows buffers[2];
        std::size_t next = task.run.begin;
        take_rows(task, next, buffers[0]);
        for (int turn = 0; buffers[turn].n > 0; turn = 1 - turn) {
            const TileRows& now = buffers[turn];
            TileRows& ahead = buffers[1 - turn];
            take_rows(task, next, ahead);
            reader.start(now, task.run.own);
            for (std::size_t column = task.begin_column; column < task.end_column; column += kTileColumns) {
                if (column + kTileColumns < task.end_column) {
                    reader.prefetch(now, column + kTileColumns, task.end_column);
                } else {
                    reader.prefetch(ahead, task.begin_column, task.end_column);
                }
                add_tile(task, reader, now, column, std::min(kTileColumns, task.end_column - column));
            }
        }
        if (task.begin_column <= task.run.own && task.run.own < task.end_column) {
            for (std::size_t k = 0; k < tables_.n_tables; ++k) sums_of(task, k)[task.run.own] = own_sums[k];
        }
    }

    // The next rows of the task's side, at most a tile of them.
    void take_rows(const Task& task, std::size_t& next, TileRows& rows) const {
        std::size_t n = 0;
        std::size_t row = next;
        for (; row < task.run.end && n < kTileRows; ++row) {
            rows.rows[n] = row;
            n += bits_[row] == task.bit;
        }
        next = row;
        rows.n = n;
        rows.unit_weights = true;
        for (std::size_t i = 0; i < n; ++i) {
            rows.weights[i] = rows_.row_weights[rows.rows[i]];
            rows.unit_weights &= rows.weights[i] == 1.0;
        }
    }

    void add_tile(const Task& task, typename Table::Reader& reader, const TileRows& rows, std::size_t column,
                  std::size_t n_columns) {
        alignas(64) std::uint16_t indices[kTileRows * kTileColumns];
        const std::uint16_t* bases = bases_.of(weight_bits_[task.run.own], task.bit) + column;
        const std::uint16_t limit = static_cast<std::uint16_t>(2 * tables_.n_bits);
        for (const TablePass& pass : paired_.passes) {
            const std::uint16_t scale = pass.width == 2 ? 2 : 1;
            if (!reader.fill(rows, column, n_columns, bases, limit, scale, indices)) {
                throw std::invalid_argument("half: expected half margins within those of the tables, -r to r");
            }
            const IndexTile tile{indices, kTileColumns, rows.n, n_columns,
                                 rows.unit_weights ? nullptr : rows.weights};
            double* sums = sums_of(task, pass.first) + column;
            if (pass.width == 2) {
                add_paired_lookups(tile, pass.values, sums, sums_of(task, pass.first + 1) + column);
            } else {
                add_lookups(tile, pass.values, sums);
            }
        }
    }

    const Table& table_;
    const std::int8_t* bits_;
    const std::int8_t* weight_bits_;
    TrainingRows rows_;
    PairTables tables_;
    double* sums_;
    ColumnBases bases_;
    PairedTables paired_;
    const TileKernels& kernels_;
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

void pair_sums(const std::int16_t* half, const std::int8_t* bits, const std::int8_t* weight_bits, TrainingRows rows,
               PairTables tables, double* sums, int n_threads) {
    require_signs(bits, rows.n, "bits");
    require_signs(weight_bits, rows.n_classes, "weight_bits");
    const HalfTable table{half, rows.n_classes};
    PairSummation<HalfTable>(table, bits, weight_bits, rows, tables, sums).run(n_threads);
}

void pair_sums_from_codes(PackedRows codes, PackedRows weights, std::size_t bit, TrainingRows rows, PairTables tables,
                          double* sums, int n_threads) {
    require_padding(codes, tables.n_bits, "codes");
    require_padding(weights, tables.n_bits, "weights");
    const std::vector<std::int8_t> bits = column_of(codes, bit);
    const std::vector<std::int8_t> weight_bits = column_of(weights, bit);
    const CodeTable table{codes, weights, grouped_pieces(weights)};
    PairSummation<CodeTable>(table, bits.data(), weight_bits.data(), rows, tables, sums).run(n_threads);
}

}  // namespace bitclass
