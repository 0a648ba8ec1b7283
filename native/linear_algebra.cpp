#include "linear_algebra.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "pool.hpp"

namespace bitclass {

namespace {

constexpr std::size_t kGramColumns = 1024;  // per tile
constexpr std::size_t kMirrored = 32;
// Triangular factors are halved down to this size: the rest of the work is products.
constexpr std::size_t kSmall = 64;
constexpr std::size_t kRowsPerPart = 192;

// The first half of a size, in whole blocks.
std::size_t half_of(std::size_t n) { return chunks_of(n / 2, kSmall) * kSmall; }

// The lower Cholesky factor of a small matrix (n, n), in place of its lower triangle.
template <class Float>
bool factorise_small(Float* matrix, std::size_t n, std::size_t stride) {
    for (std::size_t j = 0; j < n; ++j) {
        Float* const of_j = matrix + j * stride;
        Float square = of_j[j];
        for (std::size_t k = 0; k < j; ++k) square -= of_j[k] * of_j[k];
        if (!(square > 0) || !std::isfinite(square)) return false;
        of_j[j] = std::sqrt(square);
        for (std::size_t i = j + 1; i < n; ++i) {
            Float* const of_i = matrix + i * stride;
            Float sum = of_i[j];
            for (std::size_t k = 0; k < j; ++k) sum -= of_i[k] * of_j[k];
            of_i[j] = sum / of_j[j];
        }
    }
    return true;
}

// The inverse (n, n) of a small lower triangular matrix.
template <class Float>
std::vector<Float> inverse_of(const Float* lower, std::size_t n, std::size_t stride) {
    std::vector<Float> inverse(n * n);
    for (std::size_t i = 0; i < n; ++i) {
        const Float* const row = lower + i * stride;
        Float* const found = inverse.data() + i * n;
        for (std::size_t k = 0; k < i; ++k) {
            for (std::size_t j = 0; j <= k; ++j) found[j] -= row[k] * inverse[k * n + j];
        }
        for (std::size_t j = 0; j < i; ++j) found[j] /= row[i];
        found[i] = Float{1} / row[i];
    }
    return inverse;
}

// Solves L x = b, or L' x = b, in place, for rows b (n_rows, n) that are `step` apart.
template <class Float>
void solve_rows(const Float* lower, std::size_t n, std::size_t stride, bool transposed, Float* b, std::size_t n_rows,
                std::size_t step, int n_threads) {
    if (n <= kSmall) {
        const std::vector<Float> inverse = inverse_of(lower, n, stride);
        const PackedMatrix<Float> packed({inverse.data(), n, !transposed}, n, n, 1);
        parallel_for(chunks_of(n_rows, kRowsPerPart), n_threads, [&](std::size_t part) {
            const std::size_t begin = part * kRowsPerPart, size = std::min(kRowsPerPart, n_rows - begin);
            std::vector<Float> solution(size * n);
            packed.multiply({b + begin * step, step}, size, solution.data(), n);
            for (std::size_t i = 0; i < size; ++i) {
                std::copy_n(solution.data() + i * n, n, b + (begin + i) * step);
            }
        });
        return;
    }
    const std::size_t half = half_of(n), rest = n - half;
    const Float* const corner = lower + half * stride;  // (rest, half)
    const auto solve = [&](bool second) {
        const std::size_t at = second ? half : 0;
        solve_rows(lower + at * stride + at, second ? rest : half, stride, transposed, b + at, n_rows, step, n_threads);
    };
    solve(transposed);
    if (transposed) {
        multiply<Float>({b + half, step}, {corner, stride}, n_rows, half, rest, b, step, Store::kSubtract, false,
                        n_threads);
    } else {
        multiply<Float>({b, step}, {corner, stride, true}, n_rows, rest, half, b + half, step, Store::kSubtract, false,
                        n_threads);
    }
    solve(!transposed);
}

template <class Float>
bool factorise(Float* matrix, std::size_t n, std::size_t stride, int n_threads) {
    if (n <= kSmall) return factorise_small(matrix, n, stride);
    const std::size_t half = half_of(n), rest = n - half;
    Float* const corner = matrix + half * stride;
    if (!factorise(matrix, half, stride, n_threads)) return false;
    solve_rows(matrix, half, stride, false, corner, rest, stride, n_threads);
    multiply<Float>({corner, stride}, {corner, stride, true}, rest, rest, half, corner + half, stride,
                    Store::kSubtract, true, n_threads);
    return factorise(corner + half, rest, stride, n_threads);
}

}  // namespace

template <class Float>
void product(Matrix<Float> a, Matrix<Float> b, std::size_t m, std::size_t n, std::size_t k, Float* out, int n_threads) {
    multiply(a, b, m, n, k, out, n, Store::kSet, false, n_threads);
}

template void product(Matrix<float>, Matrix<float>, std::size_t, std::size_t, std::size_t, float*, int);
template void product(Matrix<double>, Matrix<double>, std::size_t, std::size_t, std::size_t, double*, int);

template <class Float>
void add_gram(const Float* x, std::size_t n, std::size_t d, double* gram, int n_threads) {
    const PackedMatrix<Float> packed({x, d}, n, d, n_threads);
    const std::size_t n_column_tiles = chunks_of(d, kGramColumns);
    const std::size_t tile_rows = rows_per_tile<Float>(d, n_column_tiles, n_threads);
    const std::size_t n_row_tiles = chunks_of(d, tile_rows);
    parallel_for(n_row_tiles * n_column_tiles, n_threads, [&](std::size_t tile) {
        const std::size_t row = (n_row_tiles - 1 - tile / n_column_tiles) * tile_rows;
        const std::size_t column = tile % n_column_tiles * kGramColumns;
        const std::size_t n_rows = std::min(tile_rows, d - row), end = std::min(column + kGramColumns, row + n_rows);
        if (end <= column) return;  // above the diagonal
        const std::size_t n_columns = end - column;
        std::vector<Float> part(n_rows * n_columns);
        packed.multiply({x + row, d, true}, n_rows, column, end, part.data(), n_columns);
        for (std::size_t r = 0; r < n_rows; ++r) {
            double* sums = gram + (row + r) * d + column;
            const std::size_t n_below = std::min(n_columns, row + r + 1 > column ? row + r + 1 - column : 0);
            for (std::size_t c = 0; c < n_below; ++c) sums[c] += static_cast<double>(part[r * n_columns + c]);
        }
        // Mirrored in small squares: whole columns of a large matrix lie in the same places of the caches.
        for (std::size_t r = row; r < row + n_rows; r += kMirrored) {
            for (std::size_t c = column; c < std::min(end, r + kMirrored); c += kMirrored) {
                const std::size_t last = std::min(r + kMirrored, row + n_rows);
                for (std::size_t j = c; j < std::min({c + kMirrored, end, last}); ++j) {
                    for (std::size_t i = std::max(r, j + 1); i < last; ++i) gram[j * d + i] = gram[i * d + j];
                }
            }
        }
    });
}

template void add_gram(const float*, std::size_t, std::size_t, double*, int);
template void add_gram(const double*, std::size_t, std::size_t, double*, int);

template <class Float>
bool cholesky(Float* matrix, std::size_t d, int n_threads) {
    if (!factorise(matrix, d, d, n_threads)) return false;
    for (std::size_t row = 0; row < d; ++row) std::fill(matrix + row * d + row + 1, matrix + (row + 1) * d, Float{0});
    return true;
}

template bool cholesky(float*, std::size_t, int);
template bool cholesky(double*, std::size_t, int);

template <class Float>
void solve_triangular(const Float* lower, std::size_t d, Float* b, std::size_t k, bool transposed, int n_threads) {
    solve_rows(lower, d, d, transposed, b, k, d, n_threads);
}

template void solve_triangular(const float*, std::size_t, float*, std::size_t, bool, int);
template void solve_triangular(const double*, std::size_t, double*, std::size_t, bool, int);

}  // namespace bitclass
