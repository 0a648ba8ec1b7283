// The table of half margins: made from codes and weights, and kept up with the weights.
#include <algorithm>
#include <vector>

#include "class_runs.hpp"
#include "pool.hpp"
#include "tiles.hpp"
#include "training.hpp"

namespace bitclass {
namespace {

constexpr std::size_t kRowsAChunk = 512;
// Below this many entries waking a second thread costs more than it saves.
constexpr std::size_t kEntriesWorthAThread = 1 << 16;

// Columns that move are found in steps of a cache line.
constexpr std::size_t kColumnsALine = 32;

// half += bit * step for the rows of one run, in those lines of columns that have a step at all.
void shift_run(const TileKernels& kernels, std::int16_t* half, const std::int8_t* bits, std::size_t n_rows,
               std::size_t n_classes, const std::vector<std::int16_t>& step) {
    const auto moves = [&](std::size_t column) {
        const std::size_t end = std::min(column + kColumnsALine, n_classes);
        return std::any_of(step.begin() + static_cast<std::ptrdiff_t>(column),
                           step.begin() + static_cast<std::ptrdiff_t>(end), [](std::int16_t s) { return s != 0; });
    };
    for (std::size_t begin = 0; begin < n_classes;) {
        if (!moves(begin)) {
            begin += kColumnsALine;
            continue;
        }
        std::size_t end = begin + kColumnsALine;
        while (end < n_classes && moves(end)) end += kColumnsALine;
        end = std::min(end, n_classes);
        kernels.shift_rows(half + begin, n_classes, bits, n_rows, end - begin, step.data() + begin);
        begin = end;
    }
}

}  // namespace

void half_margins(PackedRows codes, PackedRows weights, const std::intptr_t* own, std::int16_t* half, int n_threads) {
    require_classes(own, codes.n, weights.n, "own");
    const TileKernels& kernels = tile_kernels();
    const std::size_t n_classes = weights.n;
    const std::size_t n_pieces = pieces_of(codes.n_bytes);
    const std::vector<std::uint16_t> pieces = grouped_pieces(weights);
    static constexpr std::uint16_t no_column_base[kPieceColumns] = {};
    if (codes.n * n_classes < kEntriesWorthAThread) n_threads = 1;
    parallel_for(chunks_of(codes.n, kRowsAChunk), n_threads, [&](std::size_t chunk) {
        std::vector<std::uint32_t> row_pieces(kTileRows * n_pieces);
        std::size_t rows[kTileRows];
        std::size_t classes[kTileRows];
        std::uint16_t own_distances[kTileRows];
        std::uint16_t last_columns[kTileRows * kPieceColumns];
        const std::size_t chunk_end = std::min(codes.n, (chunk + 1) * kRowsAChunk);
        for (std::size_t begin = chunk * kRowsAChunk; begin < chunk_end; begin += kTileRows) {
            const std::size_t n_rows = std::min(kTileRows, chunk_end - begin);
            for (std::size_t i = 0; i < n_rows; ++i) {
                rows[i] = begin + i;
                classes[i] = static_cast<std::size_t>(own[begin + i]);
            }
            kernels.prepare_rows(codes.codes, codes.n_bytes, rows, n_rows, weights.codes, classes, row_pieces.data(),
                                 own_distances);
            CodeTile tile{nullptr, n_pieces, row_pieces.data(), n_rows, own_distances,
                          no_column_base, 0xffff, 1, nullptr, 0};
            for (std::size_t column = 0; column < n_classes; column += kPieceColumns) {
                tile.pieces = pieces.data() + column * n_pieces;
                // int16 and uint16 may alias, and the margins are modulo 2^16 on both sides.
                std::uint16_t* out = reinterpret_cast<std::uint16_t*>(half) + begin * n_classes + column;
                const std::size_t width = std::min(kPieceColumns, n_classes - column);
                const bool fits = width == kPieceColumns;
                tile.out = fits ? out : last_columns;
                tile.out_stride = fits ? n_classes : kPieceColumns;
                kernels.indices_from_codes(tile);
                for (std::size_t i = 0; !fits && i < n_rows; ++i) {
                    std::copy_n(last_columns + i * kPieceColumns, width, out + i * n_classes);
                }
            }
        }
    });
}

void shift_margins(std::int16_t* half, const std::int8_t* bits, const std::int8_t* old_bits,
                   const std::int8_t* new_bits, const std::intptr_t* own, std::size_t n, std::size_t n_classes,
                   int n_threads) {
    const std::vector<ClassRun> runs = class_runs(own, n, n_classes);
    require_signs(bits, n, "bits");
    require_signs(old_bits, n_classes, "old_bits");
    require_signs(new_bits, n_classes, "new_bits");
    if (std::equal(old_bits, old_bits + n_classes, new_bits)) return;
    const TileKernels& kernels = tile_kernels();
    if (n * n_classes < kEntriesWorthAThread) n_threads = 1;
    parallel_for(chunks_of(n, kRowsAChunk), n_threads, [&](std::size_t chunk) {
        std::vector<std::int16_t> step(n_classes);
        const std::size_t chunk_end = std::min(n, (chunk + 1) * kRowsAChunk);
        std::size_t row = chunk * kRowsAChunk;
        auto run = std::upper_bound(runs.begin(), runs.end(), row,
                                    [](std::size_t at, const ClassRun& r) { return at < r.end; });
        for (; row < chunk_end; ++run) {
            const int own_step = (new_bits[run->own] - old_bits[run->own]) / 2;
            for (std::size_t c = 0; c < n_classes; ++c) {
                step[c] = static_cast<std::int16_t>((new_bits[c] - old_bits[c]) / 2 - own_step);
            }
            const std::size_t end = std::min(run->end, chunk_end);
            shift_run(kernels, half + row * n_classes, bits + row, end - row, n_classes, step);
            row = end;
        }
    });
}

}  // namespace bitclass
