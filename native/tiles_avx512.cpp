#include <immintrin.h>

#include "tiles_loops.hpp"

namespace bitclass {
namespace avx512 {
namespace {

struct Isa {
    static constexpr std::size_t kShorts = 32;

    // R rows against all 32 columns; each load of a piece of the columns serves R rows.
    template <int R>
    static void rows_by_32(const CodeTile& tile, std::size_t first) {
        __m512i distances[R];
        for (int r = 0; r < R; ++r) distances[r] = _mm512_setzero_si512();
        const std::uint32_t* codes = tile.rows + first * tile.n_pieces;
        for (std::size_t piece = 0; piece < tile.n_pieces; ++piece) {
            const __m512i columns = _mm512_loadu_si512(tile.pieces + piece * kPieceColumns);
            for (int r = 0; r < R; ++r) {
                const std::uint32_t code = codes[static_cast<std::size_t>(r) * tile.n_pieces + piece];
                const __m512i differing = _mm512_xor_si512(columns, _mm512_set1_epi32(static_cast<int>(code)));
                distances[r] = _mm512_add_epi16(distances[r], _mm512_popcnt_epi16(differing));
            }
        }
        const __m512i base = _mm512_loadu_si512(tile.column_base);
        const __m512i limit = _mm512_set1_epi16(static_cast<short>(tile.limit));
        const __m512i scale = _mm512_set1_epi16(static_cast<short>(tile.scale));
        for (int r = 0; r < R; ++r) {
            const std::size_t row = first + static_cast<std::size_t>(r);
            const __m512i row_base = _mm512_set1_epi16(static_cast<short>(tile.row_base[row]));
            const __m512i index = _mm512_sub_epi16(_mm512_add_epi16(row_base, base), distances[r]);
            _mm512_storeu_si512(tile.out + row * tile.out_stride,
                                _mm512_mullo_epi16(_mm512_min_epu16(index, limit), scale));
        }
    }

    static void indices_from_codes(const CodeTile& tile) {
        std::size_t row = 0;
        for (; row + 4 <= tile.n_rows; row += 4) rows_by_32<4>(tile, row);
        for (; row < tile.n_rows; ++row) rows_by_32<1>(tile, row);
    }
};

}  // namespace

extern const TileKernels tiles;
const TileKernels tiles = TileLoops<Isa>::table();

}  // namespace avx512
}  // namespace bitclass
