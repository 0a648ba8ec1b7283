#include <arm_neon.h>

#include "tiles_loops.hpp"

namespace bitclass {
namespace neon {
namespace {

struct Isa {
    static constexpr std::size_t kShorts = 8;

    static void indices_from_codes(const CodeTile& tile) {
        constexpr std::size_t kWidth = 8;
        const uint16x8_t limit = vdupq_n_u16(tile.limit);
        const uint16x8_t scale = vdupq_n_u16(tile.scale);
        for (std::size_t i = 0; i < tile.n_rows; ++i) {
            const std::uint32_t* row = tile.rows + i * tile.n_pieces;
            uint16x8_t distances[kPieceColumns / kWidth];
            for (uint16x8_t& distance : distances) distance = vdupq_n_u16(0);
            for (std::size_t piece = 0; piece < tile.n_pieces; ++piece) {
                const uint16x8_t code = vdupq_n_u16(static_cast<std::uint16_t>(row[piece]));
                const std::uint16_t* columns = tile.pieces + piece * kPieceColumns;
                for (std::size_t part = 0; part < kPieceColumns / kWidth; ++part) {
                    const uint16x8_t differing = veorq_u16(vld1q_u16(columns + part * kWidth), code);
                    distances[part] = vpadalq_u8(distances[part], vcntq_u8(vreinterpretq_u8_u16(differing)));
                }
            }
            const uint16x8_t row_base = vdupq_n_u16(tile.row_base[i]);
            for (std::size_t part = 0; part < kPieceColumns / kWidth; ++part) {
                const uint16x8_t base = vaddq_u16(row_base, vld1q_u16(tile.column_base + part * kWidth));
                const uint16x8_t index = vminq_u16(vsubq_u16(base, distances[part]), limit);
                vst1q_u16(tile.out + i * tile.out_stride + part * kWidth, vmulq_u16(index, scale));
            }
        }
    }
};

}  // namespace

extern const TileKernels tiles;
const TileKernels tiles = TileLoops<Isa>::table();

}  // namespace neon
}  // namespace bitclass
