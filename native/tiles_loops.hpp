// The loops of tiles.hpp that the compiler vectorises by itself, for the files tiles_<level>.cpp.
//
// Everything is a member of a template over a type of the level's own namespace: two files built for
// different instruction sets must never share an inline function, or the linker would keep one.
#pragma once

#include <cstring>

#include "tiles.hpp"

namespace bitclass {

// Isa offers: static void indices_from_codes(const CodeTile&), and kShorts, the 16-bit lanes of its vectors.
template <class Isa>
struct TileLoops {
    // Vectors of the compiler's own, of 16-bit lanes.
    struct S {
        using Vector __attribute__((vector_size(2 * Isa::kShorts))) = std::uint16_t;

        static Vector load(const void* from) {
            Vector vector;
            std::memcpy(&vector, from, sizeof vector);
            return vector;
        }
        static void store(void* to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }
        static Vector all(std::uint16_t value) { return Vector{} + value; }
        static Vector smaller(Vector a, Vector b) { return a < b ? a : b; }
    };

    static void prepare_rows(const std::uint8_t* codes, std::size_t n_bytes, const std::size_t* rows,
                             std::size_t n_rows, const std::uint8_t* weights, const std::size_t* own,
                             std::uint32_t* row_pieces, std::uint16_t* own_distances) {
        for (std::size_t i = 0; i < n_rows; ++i) {
            const std::uint8_t* code = codes + rows[i] * n_bytes;
            const std::uint8_t* weight = weights + own[i] * n_bytes;
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

    static void block_indices(const std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                              const std::int16_t* lane_base, std::uint16_t limit, std::uint16_t* out) {
        for (std::size_t lane = 0; lane < kLanes; lane += Isa::kShorts) {
            const auto base = S::load(lane_base + lane);
            const auto most = S::all(limit);
            for (std::size_t j = 0; j < n_classes; ++j) {
                const auto index = S::load(margins + classes[j] * kLanes + lane) + base;
                const auto safe = S::smaller(index, most);
                S::store(out + j * kLanes + lane, safe + safe);
            }
        }
    }

    static void block_shift(std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                            const std::int16_t* change) {
        for (std::size_t lane = 0; lane < kLanes; lane += Isa::kShorts) {
            const auto by = S::load(change + lane);
            for (std::size_t j = 0; j < n_classes; ++j) {
                std::int16_t* margin = margins + classes[j] * kLanes + lane;
                S::store(margin, S::load(margin) + by);
            }
        }
    }

    static void block_top(const std::int16_t* margins, std::size_t n_classes, std::int16_t* top) {
        using Vector __attribute__((vector_size(2 * Isa::kShorts))) = std::int16_t;
        for (std::size_t lane = 0; lane < kLanes; lane += Isa::kShorts) {
            Vector most;
            std::memcpy(&most, margins + lane, sizeof most);
            for (std::size_t c = 1; c < n_classes; ++c) {
                Vector margin;
                std::memcpy(&margin, margins + c * kLanes + lane, sizeof margin);
                most = margin > most ? margin : most;
            }
            std::memcpy(top + lane, &most, sizeof most);
        }
    }

    static double move_slopes(double* __restrict slope, const double* __restrict H, double factor,
                              const double* __restrict w, const double* __restrict tolerance, std::size_t n,
                              double* __restrict gains) {
        constexpr std::size_t kWidth = 16;
        double most[kWidth] = {};
        double undefined[kWidth] = {};
        const auto move = [&](std::size_t c, std::size_t lane) {
            slope[c] += H[c] * factor;
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

    template <std::size_t n_rows, class Float>
    static void add_exactly(double* __restrict sums, const Float* const* rows, const double* weights, std::size_t n) {
        const Float* x[n_rows];
        double weight[n_rows];
        for (std::size_t i = 0; i < n_rows; ++i) {
            x[i] = rows[i];
            weight[i] = weights[i];
        }
        for (std::size_t j = 0; j < n; ++j) {
            double sum = sums[j];
            for (std::size_t i = 0; i < n_rows; ++i) sum += weight[i] * static_cast<double>(x[i][j]);
            sums[j] = sum;
        }
    }

    template <class Float>
    static void add_rows(double* sums, const Float* const* rows, const double* weights, std::size_t n_rows,
                         std::size_t n) {
        static_assert(kRowsAtOnce == 8, "the steps below add up to the number of rows");
        if (n_rows == 8) return add_exactly<8>(sums, rows, weights, n);
        if ((n_rows & 4) != 0) add_exactly<4>(sums, rows, weights, n);
        if ((n_rows & 2) != 0) add_exactly<2>(sums, rows + (n_rows & 4), weights + (n_rows & 4), n);
        if ((n_rows & 1) != 0) add_exactly<1>(sums, rows + (n_rows & 6), weights + (n_rows & 6), n);
    }

    static constexpr TileKernels table() {
        return {Isa::indices_from_codes, prepare_rows, block_indices,   block_shift,
                block_top,               move_slopes,  add_rows<float>, add_rows<double>};
    }
};

}  // namespace bitclass
