#include <immintrin.h>

#include "tiles_loops.hpp"

namespace bitclass {
namespace avx2 {
namespace {

// A byte counter holds the set bits of this many pieces without overflow.
constexpr std::size_t kPiecesPerByteCounter = 31;

struct Isa {
    static constexpr std::size_t kShorts = 16;

    // R rows against one half of the 32 columns: 16 lanes of 16 bits.
    template <int R>
    static void rows_by_16(const CodeTile& tile, std::size_t first, std::size_t column) {
        const __m256i counts = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                                                0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
        const __m256i nibble = _mm256_set1_epi8(0x0f);
        const __m256i ones = _mm256_set1_epi8(1);
        __m256i distances[R];
        for (int r = 0; r < R; ++r) distances[r] = _mm256_setzero_si256();
        for (std::size_t begin = 0; begin < tile.n_pieces; begin += kPiecesPerByteCounter) {
            const std::size_t left = tile.n_pieces - begin;
            const std::size_t end = begin + (left < kPiecesPerByteCounter ? left : kPiecesPerByteCounter);
            __m256i bytes[R];
            for (int r = 0; r < R; ++r) bytes[r] = _mm256_setzero_si256();
            for (std::size_t piece = begin; piece < end; ++piece) {
                const __m256i columns = _mm256_loadu_si256(
                    reinterpret_cast<const __m256i*>(tile.pieces + piece * kPieceColumns + column));
                for (int r = 0; r < R; ++r) {
                    const std::uint32_t code = tile.rows[(first + static_cast<std::size_t>(r)) * tile.n_pieces + piece];
                    const __m256i differing = _mm256_xor_si256(columns, _mm256_set1_epi32(static_cast<int>(code)));
                    const __m256i low = _mm256_shuffle_epi8(counts, _mm256_and_si256(differing, nibble));
                    const __m256i high = _mm256_shuffle_epi8(
                        counts, _mm256_and_si256(_mm256_srli_epi16(differing, 4), nibble));
                    bytes[r] = _mm256_add_epi8(bytes[r], _mm256_add_epi8(low, high));
                }
            }
            for (int r = 0; r < R; ++r) {
                distances[r] = _mm256_add_epi16(distances[r], _mm256_maddubs_epi16(bytes[r], ones));
            }
        }
        const __m256i base =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile.column_base + column));
        const __m256i limit = _mm256_set1_epi16(static_cast<short>(tile.limit));
        const __m256i scale = _mm256_set1_epi16(static_cast<short>(tile.scale));
        for (int r = 0; r < R; ++r) {
            const std::size_t row = first + static_cast<std::size_t>(r);
            const __m256i row_base = _mm256_set1_epi16(static_cast<short>(tile.row_base[row]));
            const __m256i index = _mm256_sub_epi16(_mm256_add_epi16(row_base, base), distances[r]);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile.out + row * tile.out_stride + column),
                                _mm256_mullo_epi16(_mm256_min_epu16(index, limit), scale));
        }
    }

    static void indices_from_codes(const CodeTile& tile) {
        constexpr std::size_t kHalf = kPieceColumns / 2;
        std::size_t row = 0;
        for (; row + 4 <= tile.n_rows; row += 4) {
            rows_by_16<4>(tile, row, 0);
            rows_by_16<4>(tile, row, kHalf);
        }
        for (; row < tile.n_rows; ++row) {
            rows_by_16<1>(tile, row, 0);
            rows_by_16<1>(tile, row, kHalf);
        }
    }
};

}  // namespace

extern const TileKernels tiles;
const TileKernels tiles = TileLoops<Isa>::table();

}  // namespace avx2
}  // namespace bitclass
