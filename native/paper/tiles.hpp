// The vectorised inner loops of the paper's kernels, one table of functions per instruction set.
//
// They work in small tiles that stay in the L1 cache: one of these functions writes a tile of table
// indices, which the scalar lookups of lookup_sums.cpp then read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitclass {

// Class weights or codes are compared 32 at a time: a "piece" is 16 bits of a code, and the pieces of 32
// codes are interleaved.
constexpr std::size_t kPieceColumns = 32;
// Columns and rows of a tile of indices (8 KB).
constexpr std::size_t kTileColumns = 64;
constexpr std::size_t kTileRows = 64;
// Rows per block of the B-step, interleaved.
constexpr std::size_t kLanes = 32;

// out[i][c] = min(row_base[i] + column_base[c] - Hamming(row i, column c), limit) * scale
// for 32 columns, modulo 2^16 before the minimum, so that no index ever exceeds the limit.
struct CodeTile {
    const std::uint16_t* pieces;  // (n_pieces, 32)
    std::size_t n_pieces;
    const std::uint32_t* rows;  // (n_rows, n_pieces), each piece repeated: x | x << 16
    std::size_t n_rows;
    const std::uint16_t* row_base;     // (n_rows,)
    const std::uint16_t* column_base;  // (32,)
    std::uint16_t limit;
    std::uint16_t scale;
    std::uint16_t* out;
    std::size_t out_stride;
};

struct PaperKernels {
    void (*indices_from_codes)(const CodeTile& tile);

    // Repeated pieces of the listed rows of codes (n, n_bytes), and their Hamming distances to the weights
    // of their classes y.
    void (*prepare_rows)(const std::uint8_t* codes, std::size_t n_bytes, const std::size_t* rows, std::size_t n_rows,
                         const std::uint8_t* weights, const std::size_t* y, std::uint32_t* row_pieces,
                         std::uint16_t* y_distances);

    // B-step, margins (C, kLanes): out[j][lane] = 2 * min(margins[classes[j]][lane] + lane_base[lane], limit).
    void (*block_indices)(const std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                          const std::int16_t* lane_base, std::uint16_t limit, std::uint16_t* out);

    // margins[classes[j]][lane] += change[lane].
    void (*block_shift)(std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                        const std::int16_t* change);

    // top[lane] = max over the classes of margins[c][lane].
    void (*block_top)(const std::int16_t* margins, std::size_t n_classes, std::int16_t* top);
};

}  // namespace bitclass
