// Large products and factorisations, tile by tile on the pool. Tiles depend on the shapes alone: results are the same
// for every number of threads.
#pragma once

#include <cstddef>

#include "multiply.hpp"

namespace bitclass {

// out (m, n) = a (m, k) b (k, n)
template <class Float>
void product(Matrix<Float> a, Matrix<Float> b, std::size_t m, std::size_t n, std::size_t k, Float* out, int n_threads);

// gram (d, d) += x' x for rows x (n, d). A product has the precision of x, and is added in double precision.
template <class Float>
void add_gram(const Float* x, std::size_t n, std::size_t d, double* gram, int n_threads);

// The lower Cholesky factor of a symmetric matrix (d, d), in place; false if it is not positive definite.
template <class Float>
bool cholesky(Float* matrix, std::size_t d, int n_threads);

// Solves L x = b, or L' x = b if transposed, in place, for each row b of a matrix (k, d); L (d, d) is lower triangular.
template <class Float>
void solve_triangular(const Float* lower, std::size_t d, Float* b, std::size_t k, bool transposed, int n_threads);

}  // namespace bitclass
