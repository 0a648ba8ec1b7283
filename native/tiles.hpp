// The vectorised inner loops of training, one table of functions for each instruction set.
//
// Training works in small tiles that stay in the L1 cache: a tile of table indices is written by one
// of these functions and consumed by the look-ups of lookup_sums.cpp, which need no vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitclass {

// Class weights or codes are compared 32 at a time: "pieces" holds, 16 bits of code after 16 bits,
// that piece of 32 codes side by side.
constexpr std::size_t kPieceColumns = 32;
// Columns and rows of one tile of indices (8 KB).
constexpr std::size_t kTileColumns = 64;
constexpr std::size_t kTileRows = 64;
// Rows added to a sum in one go.
constexpr std::size_t kRowsAtOnce = 8;
// Rows of one block of the B-step, side by side.
constexpr std::size_t kLanes = 32;

// out[i][c] = min(row_base[i] + column_base[c] - Hamming(row i, column c), limit) * scale
// for 32 columns, modulo 2^16 before the minimum, so that no index ever exceeds the limit.
struct CodeTile {
    const std::uint16_t* pieces;  // (n_pieces, 32)
    std::size_t n_pieces;
    const std::uint32_t* rows;  // (n_rows, n_pieces), each piece doubled: x | x << 16
    std::size_t n_rows;
    const std::uint16_t* row_base;     // (n_rows,)
    const std::uint16_t* column_base;  // (32,)
    std::uint16_t limit;
    std::uint16_t scale;
    std::uint16_t* out;
    std::size_t out_stride;
};

template <class Float>
struct RowKernels {
    // sums[j] += weights[i] * rows[i][j], row after row, for at most kRowsAtOnce rows.
    void (*add_rows)(double* sums, const Float* const* rows, const double* weights, std::size_t n_rows, std::size_t n);
};

struct TrainingKernels : RowKernels<float>, RowKernels<double> {
    void (*indices_from_codes)(const CodeTile& tile);

    // Doubled pieces of the listed rows of codes (n, n_bytes), and their Hamming distances to the
    // weights of their own classes, listed as the rows are.
    void (*prepare_rows)(const std::uint8_t* codes, std::size_t n_bytes, const std::size_t* rows, std::size_t n_rows,
                         const std::uint8_t* weights, const std::size_t* y, std::uint32_t* row_pieces,
                         std::uint16_t* own_distances);

    // B-step, margins (C, kLanes): out[j][lane] = 2 * min(margins[classes[j]][lane] + lane_base[lane], limit).
    void (*block_indices)(const std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                          const std::int16_t* lane_base, std::uint16_t limit, std::uint16_t* out);

    // margins[classes[j]][lane] += change[lane].
    void (*block_shift)(std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                        const std::int16_t* change);

    // top[lane] = max over the classes of margins[c][lane].
    void (*block_top)(const std::int16_t* margins, std::size_t n_classes, std::int16_t* top);

    // slope[c] += H[c] * factor; gains[c] = w[c] * slope[c], or 0 where that is at most the
    // tolerance. Returns the largest gain, or a NaN if any gain is one.
    double (*move_slopes)(double* slope, const double* H, double factor, const double* w, const double* tolerance,
                          std::size_t n, double* gains);
};

}  // namespace bitclass
