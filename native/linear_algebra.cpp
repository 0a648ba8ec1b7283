#include "linear_algebra.hpp"

#include <algorithm>
#include <vector>

#include "pool.hpp"

namespace bitclass {

namespace {

constexpr std::size_t kRowsPerTile = 256, kColumnsPerTile = 512;
// Width of the tiles of a Gram matrix: narrow ones for few features, so that there are enough for all threads.
constexpr std::size_t kMinGramTile = 128, kMaxGramTile = 512, kGramTiles = 8;
// Width of the blocks of a triangular factor, and up to which size it is one block.
constexpr std::size_t kBlock = 256, kMaxSingleBlock = 512;

std::size_t block_width(std::size_t d) { return d <= kMaxSingleBlock ? std::max<std::size_t>(d, 1) : kBlock; }

template <class Float>
bool factorise_block(Float* block, std::size_t size, std::size_t stride) {
    char upper = 'U';  // of the transpose that LAPACK sees
    int n = static_cast<int>(size), lda = static_cast<int>(stride), info = 0;
    blas<Float>.potrf(&upper, &n, block, &lda, &info);
    return info == 0;
}

}  // namespace

template <class Float>
void product(Matrix<Float> a, Matrix<Float> b, std::size_t m, std::size_t n, std::size_t k, Float* out, int n_threads) {
    const std::size_t n_rows = rows_per_part(m), n_row_tiles = chunks_of(m, n_rows);
    parallel_for(n_row_tiles * chunks_of(n, kColumnsPerTile), n_threads, [&](std::size_t tile) {
        const std::size_t row = tile % n_row_tiles * n_rows, column = tile / n_row_tiles * kColumnsPerTile;
        const Matrix<Float> of_a{a.data + row * (a.transposed ? 1 : a.stride), a.stride, a.transposed};
        const Matrix<Float> of_b{b.data + column * (b.transposed ? b.stride : 1), b.stride, b.transposed};
        const std::size_t n_columns = std::min(kColumnsPerTile, n - column);
        multiply(of_a, of_b, std::min(n_rows, m - row), n_columns, k, out + row * n + column, n);
    });
}

template void product(Matrix<float>, Matrix<float>, std::size_t, std::size_t, std::size_t, float*, int);
template void product(Matrix<double>, Matrix<double>, std::size_t, std::size_t, std::size_t, double*, int);

template <class Float>
void add_gram(const Float* x, std::size_t n, std::size_t d, double* gram, int n_threads) {
    const std::size_t width = std::clamp(chunks_of(d, kGramTiles * 16) * 16, kMinGramTile, kMaxGramTile);
    const std::size_t n_tiles = chunks_of(d, width);
    parallel_for(n_tiles * (n_tiles + 1) / 2, n_threads, [&](std::size_t tile) {
        std::size_t i = 0;
        for (; tile > i; ++i) tile -= i + 1;  // tile j <= i of the lower triangle
        const std::size_t row = i * width, column = tile * width;
        const std::size_t n_rows = std::min(width, d - row), n_columns = std::min(width, d - column);
        std::vector<Float> part(n_rows * n_columns);
        const bool on_diagonal = i == tile;
        if (on_diagonal) {
            multiply_by_itself(x + row, d, n, n_rows, part.data());
        } else {
            multiply<Float>({x + row, d, true}, {x + column, d}, n_rows, n_columns, n, part.data(), n_columns);
        }
        for (std::size_t r = 0; r < n_rows; ++r) {
            double* sums = gram + (row + r) * d + column;
            const std::size_t end = on_diagonal ? r + 1 : n_columns;
            for (std::size_t c = 0; c < end; ++c) sums[c] += static_cast<double>(part[r * n_columns + c]);
        }
        for (std::size_t c = 0; c < n_columns; ++c) {  // mirrored
            double* sums = gram + (column + c) * d + row;
            for (std::size_t r = on_diagonal ? c + 1 : 0; r < n_rows; ++r) sums[r] = gram[(row + r) * d + column + c];
        }
    });
}

template void add_gram(const float*, std::size_t, std::size_t, double*, int);
template void add_gram(const double*, std::size_t, std::size_t, double*, int);

template <class Float>
bool cholesky(Float* matrix, std::size_t d, int n_threads) {
    const std::size_t width = block_width(d);
    const auto at = [&](std::size_t row, std::size_t column) { return matrix + row * d + column; };
    for (std::size_t begin = 0; begin < d; begin += width) {
        const std::size_t size = std::min(width, d - begin), rest = begin + size;
        if (!factorise_block(at(begin, begin), size, d)) return false;
        const std::size_t n_below = chunks_of(d - rest, width);
        parallel_for(n_below, n_threads, [&](std::size_t tile) {
            const std::size_t row = rest + tile * width;
            solve_rows(at(begin, begin), d, size, false, at(row, begin), std::min(width, d - row));
        });
        parallel_for(n_below * (n_below + 1) / 2, n_threads, [&](std::size_t tile) {
            std::size_t i = 0;
            for (; tile > i; ++i) tile -= i + 1;
            const std::size_t row = rest + i * width, column = rest + tile * width;
            multiply<Float>({at(row, begin), d}, {at(column, begin), d, true}, std::min(width, d - row),
                            std::min(width, d - column), size, at(row, column), d, -1, 1);
        });
    }
    for (std::size_t row = 0; row < d; ++row) std::fill(at(row, row) + 1, at(row, 0) + d, Float{0});
    return true;
}

template bool cholesky(float*, std::size_t, int);
template bool cholesky(double*, std::size_t, int);

template <class Float>
void solve_triangular(const Float* lower, std::size_t d, Float* b, std::size_t k, bool transposed, int n_threads) {
    const std::size_t width = block_width(d), n_blocks = chunks_of(d, width), n_rows = rows_per_part(k);
    for (std::size_t step = 0; step < n_blocks; ++step) {
        const std::size_t begin = (transposed ? n_blocks - 1 - step : step) * width, size = std::min(width, d - begin);
        parallel_for(chunks_of(k, n_rows), n_threads, [&](std::size_t part) {
            const std::size_t row = part * n_rows;
            solve_rows(lower + begin * d + begin, d, size, transposed, b + row * d + begin, std::min(n_rows, k - row));
        });
        // What is solved leaves the right-hand sides of the blocks that follow.
        const std::size_t first = transposed ? 0 : begin + size, end = transposed ? begin : d;
        const std::size_t n_row_tiles = chunks_of(k, kRowsPerTile), n_tiles = chunks_of(end - first, kColumnsPerTile);
        parallel_for(n_row_tiles * n_tiles, n_threads, [&](std::size_t tile) {
            const std::size_t row = tile % n_row_tiles * kRowsPerTile;
            const std::size_t column = first + tile / n_row_tiles * kColumnsPerTile;
            const Matrix<Float> factor = transposed ? Matrix<Float>{lower + begin * d + column, d}
                                                    : Matrix<Float>{lower + column * d + begin, d, true};
            multiply<Float>({b + row * d + begin, d}, factor, std::min(kRowsPerTile, k - row),
                            std::min(kColumnsPerTile, end - column), size, b + row * d + column, d, -1, 1);
        });
    }
}

template void solve_triangular(const float*, std::size_t, float*, std::size_t, bool, int);
template void solve_triangular(const double*, std::size_t, double*, std::size_t, bool, int);

}  // namespace bitclass
