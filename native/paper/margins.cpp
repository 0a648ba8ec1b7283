// Half margins from codes and weights.
#include <algorithm>
#include <vector>

#include "../dispatch.hpp"
#include "../pool.hpp"
#include "class_runs.hpp"
#include "paper.hpp"

namespace bitclass {
namespace {

constexpr std::size_t kRowsPerChunk = 512;
// With fewer entries, waking a second thread costs more than it saves.
constexpr std::size_t kMinEntriesForThreads = 1 << 16;

}  // namespace

void half_margins(PackedRows codes, PackedRows weights, const std::intptr_t* y, std::int16_t* half, int n_threads) {
    require_classes(y, codes.n, weights.n, "y");
    const PaperKernels& loops = kernels().paper;
    const std::size_t n_classes = weights.n;
    const std::size_t n_pieces = pieces_of(codes.n_bytes);
    const std::vector<std::uint16_t> pieces = grouped_pieces(weights);
    static constexpr std::uint16_t no_column_base[kPieceColumns] = {};
    if (codes.n * n_classes < kMinEntriesForThreads) n_threads = 1;
    parallel_for(chunks_of(codes.n, kRowsPerChunk), n_threads, [&](std::size_t chunk) {
        std::vector<std::uint32_t> row_pieces(kTileRows * n_pieces);
        std::size_t rows[kTileRows];
        std::size_t classes[kTileRows];
        std::uint16_t y_distances[kTileRows];
        std::uint16_t last_columns[kTileRows * kPieceColumns];
        const std::size_t chunk_end = std::min(codes.n, (chunk + 1) * kRowsPerChunk);
        for (std::size_t begin = chunk * kRowsPerChunk; begin < chunk_end; begin += kTileRows) {
            const std::size_t n_rows = std::min(kTileRows, chunk_end - begin);
            for (std::size_t i = 0; i < n_rows; ++i) {
                rows[i] = begin + i;
                classes[i] = static_cast<std::size_t>(y[begin + i]);
            }
            loops.prepare_rows(codes.codes, codes.n_bytes, rows, n_rows, weights.codes, classes, row_pieces.data(),
                               y_distances);
            CodeTile tile{nullptr, n_pieces, row_pieces.data(), n_rows, y_distances, no_column_base,
                          0xffff,  1,        nullptr,           0};
            for (std::size_t column = 0; column < n_classes; column += kPieceColumns) {
                tile.pieces = pieces.data() + column * n_pieces;
                // int16 and uint16 may alias, and margins are computed modulo 2^16.
                std::uint16_t* out = reinterpret_cast<std::uint16_t*>(half) + begin * n_classes + column;
                const std::size_t width = std::min(kPieceColumns, n_classes - column);
                const bool fits = width == kPieceColumns;
                tile.out = fits ? out : last_columns;
                tile.out_stride = fits ? n_classes : kPieceColumns;
                loops.indices_from_codes(tile);
                for (std::size_t i = 0; !fits && i < n_rows; ++i) {
                    std::copy_n(last_columns + i * kPieceColumns, width, out + i * n_classes);
                }
            }
        }
    });
}

}  // namespace bitclass
