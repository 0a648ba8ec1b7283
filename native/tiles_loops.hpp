// The loops of tiles.hpp that the compiler vectorises by itself, for the files tiles_<level>.cpp.
//
// Everything is a member of a template over a type of the level's own namespace: two files built for
// different instruction sets must never share an inline function, or the linker would keep one.
#pragma once

#include <cstring>

#include "tiles.hpp"

namespace bitclass {

// Isa offers: static void indices_from_codes(const CodeTile&).
template <class Isa>
struct TileLoops {
    static bool indices_from_half(const HalfTile& tile) {
        const std::uint16_t limit = tile.limit;
        const int shift = tile.shift;
        std::uint16_t beyond = 0;
        for (std::size_t i = 0; i < tile.n_rows; ++i) {
            const std::int16_t* half = tile.half + tile.rows[i] * tile.half_stride;
            const std::uint16_t* base = tile.column_base;
            std::uint16_t* __restrict out = tile.out + i * tile.out_stride;
            for (std::size_t c = 0; c < tile.n_columns; ++c) {
                const std::uint16_t index = static_cast<std::uint16_t>(half[c] + base[c]);
                const std::uint16_t safe = index < limit ? index : limit;
                beyond = static_cast<std::uint16_t>(beyond | (index ^ safe));
                out[c] = static_cast<std::uint16_t>(safe << shift);
            }
        }
        return beyond != 0;
    }

    static void prepare_rows(const std::uint8_t* codes, std::size_t n_bytes, const std::size_t* rows,
                             std::size_t n_rows, const std::uint8_t* weights, const std::intptr_t* own,
                             std::uint32_t* row_pieces, std::uint16_t* own_distances) {
        for (std::size_t i = 0; i < n_rows; ++i) {
            const std::uint8_t* code = codes + rows[i] * n_bytes;
            const std::uint8_t* weight = weights + static_cast<std::size_t>(own[rows[i]]) * n_bytes;
            int distance = 0;
            for (std::size_t at = 0; at < n_bytes; at += 8) {
                const std::size_t width = n_bytes - at < 8 ? n_bytes - at : 8;
                std::uint64_t a = 0;
                std::uint64_t b = 0;
                if (width == 8) {
                    std::memcpy(&a, code + at, 8);
                    std::memcpy(&b, weight + at, 8);
                } else {
                    std::memcpy(&a, code + at, width);
                    std::memcpy(&b, weight + at, width);
                }
                distance += __builtin_popcountll(a ^ b);
                for (std::size_t byte = 0; byte < width; byte += 2) {
                    *row_pieces++ = static_cast<std::uint32_t>(a & 0xffff) * 0x10001u;
                    a >>= 16;
                }
            }
            own_distances[i] = static_cast<std::uint16_t>(distance);
        }
    }

    static void shift_rows(std::int16_t* half, std::size_t half_stride, const std::int8_t* bits, std::size_t n_rows,
                           std::size_t n_columns, const std::int16_t* __restrict step) {
        for (std::size_t i = 0; i < n_rows; ++i, half += half_stride) {
            const std::int16_t bit = bits[i];
            std::int16_t* __restrict row = half;
            for (std::size_t c = 0; c < n_columns; ++c) row[c] = static_cast<std::int16_t>(row[c] + bit * step[c]);
        }
    }

    static void block_indices(const std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                              const std::int16_t* lane_base, std::uint16_t limit, std::uint16_t* out) {
        std::uint16_t base[kLanes];
        for (std::size_t lane = 0; lane < kLanes; ++lane) base[lane] = static_cast<std::uint16_t>(lane_base[lane]);
        for (std::size_t j = 0; j < n_classes; ++j) {
            const std::int16_t* margin = margins + classes[j] * kLanes;
            std::uint16_t* __restrict indices = out + j * kLanes;
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                const std::uint16_t index = static_cast<std::uint16_t>(margin[lane] + base[lane]);
                indices[lane] = static_cast<std::uint16_t>((index < limit ? index : limit) << 1);
            }
        }
    }

    static void block_shift(std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                            const std::int16_t* change) {
        std::int16_t by[kLanes];
        for (std::size_t lane = 0; lane < kLanes; ++lane) by[lane] = change[lane];
        for (std::size_t j = 0; j < n_classes; ++j) {
            std::int16_t* margin = margins + classes[j] * kLanes;
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                margin[lane] = static_cast<std::int16_t>(margin[lane] + by[lane]);
            }
        }
    }

    static void block_top(const std::int16_t* margins, std::size_t n_classes, std::int16_t* top) {
        std::int16_t most[kLanes];
        for (std::size_t lane = 0; lane < kLanes; ++lane) most[lane] = margins[lane];
        for (std::size_t c = 1; c < n_classes; ++c) {
            const std::int16_t* margin = margins + c * kLanes;
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                most[lane] = margin[lane] > most[lane] ? margin[lane] : most[lane];
            }
        }
        for (std::size_t lane = 0; lane < kLanes; ++lane) top[lane] = most[lane];
    }

    static double move_slopes(double* __restrict slope, const double* __restrict coupling, double factor,
                              const double* __restrict w, const double* __restrict tolerance, std::size_t n,
                              double* __restrict gains) {
        constexpr std::size_t kWidth = 16;
        double most[kWidth] = {};
        double undefined[kWidth] = {};
        const auto move = [&](std::size_t c, std::size_t lane) {
            slope[c] += coupling[c] * factor;
            const double product = w[c] * slope[c];
            const double gain = product <= tolerance[c] ? 0.0 : product;
            gains[c] = gain;
            most[lane] = gain > most[lane] ? gain : most[lane];
            undefined[lane] += gain != gain ? 1.0 : 0.0;
        };
        std::size_t c = 0;
        for (; c + kWidth <= n; c += kWidth) {
            for (std::size_t lane = 0; lane < kWidth; ++lane) move(c + lane, lane);
        }
        for (std::size_t lane = 0; c < n; ++c, ++lane) move(c, lane);
        double largest = 0.0;
        double not_numbers = 0.0;
        for (std::size_t lane = 0; lane < kWidth; ++lane) {
            largest = most[lane] > largest ? most[lane] : largest;
            not_numbers += undefined[lane];
        }
        return not_numbers > 0.0 ? __builtin_nan("") : largest;
    }

    template <class Float>
    static void add_row(double* __restrict sums, const Float* __restrict x, double weight, std::size_t n) {
        for (std::size_t j = 0; j < n; ++j) sums[j] += weight * static_cast<double>(x[j]);
    }

    static constexpr TileKernels table() {
        return {Isa::indices_from_codes, indices_from_half, prepare_rows, shift_rows,     block_indices,
                block_shift,             block_top,         move_slopes,  add_row<float>, add_row<double>};
    }
};

}  // namespace bitclass
