#include "tiles_loops.hpp"

namespace bitclass {
namespace portable {
namespace {

struct Isa {
    static constexpr std::size_t kShorts = 8;

    static void indices_from_codes(const CodeTile& tile) {
        for (std::size_t i = 0; i < tile.n_rows; ++i) {
            const std::uint32_t* row = tile.rows + i * tile.n_pieces;
            std::uint16_t distances[kPieceColumns] = {};
            for (std::size_t piece = 0; piece < tile.n_pieces; ++piece) {
                const std::uint16_t* columns = tile.pieces + piece * kPieceColumns;
                const std::uint16_t own = static_cast<std::uint16_t>(row[piece]);
                // Sums of neighbouring bits, then pairs, nibbles, bytes: no table, so it vectorises.
                for (std::size_t c = 0; c < kPieceColumns; ++c) {
                    std::uint16_t x = static_cast<std::uint16_t>(columns[c] ^ own);
                    x = static_cast<std::uint16_t>(x - ((x >> 1) & 0x5555));
                    x = static_cast<std::uint16_t>((x & 0x3333) + ((x >> 2) & 0x3333));
                    x = static_cast<std::uint16_t>((x + (x >> 4)) & 0x0f0f);
                    x = static_cast<std::uint16_t>((x + (x >> 8)) & 0x1f);
                    distances[c] = static_cast<std::uint16_t>(distances[c] + x);
                }
            }
            std::uint16_t* out = tile.out + i * tile.out_stride;
            for (std::size_t c = 0; c < kPieceColumns; ++c) {
                const std::uint16_t index =
                    static_cast<std::uint16_t>(tile.row_base[i] + tile.column_base[c] - distances[c]);
                out[c] = static_cast<std::uint16_t>((index < tile.limit ? index : tile.limit) * tile.scale);
            }
        }
    }
};

}  // namespace

extern const TileKernels tiles;
const TileKernels tiles = TileLoops<Isa>::table();

}  // namespace portable
}  // namespace bitclass
