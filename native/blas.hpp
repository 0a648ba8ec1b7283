// BLAS and LAPACK by pointers to SciPy's, which Python passes on: the kernels link none of their own. Training limits
// them to one thread; kernels call them from the threads of the pool.
#pragma once

#include <cstddef>

namespace bitclass {

// Of float or double.
template <class Float>
struct Blas {
    void (*gemm)(char* trans_a, char* trans_b, int* m, int* n, int* k, Float* alpha, Float* a, int* lda, Float* b,
                 int* ldb, Float* beta, Float* c, int* ldc);
    void (*syrk)(char* uplo, char* trans, int* n, int* k, Float* alpha, Float* a, int* lda, Float* beta, Float* c,
                 int* ldc);
    void (*trsm)(char* side, char* uplo, char* trans, char* diag, int* m, int* n, Float* alpha, Float* a, int* lda,
                 Float* b, int* ldb);
    void (*potrf)(char* uplo, int* n, Float* a, int* lda, int* info);
};

// To be set before any other function that uses it.
template <class Float>
inline Blas<Float> blas{};

// A matrix in row-major order, or the transpose of one.
template <class Float>
struct Matrix {
    const Float* data;
    std::size_t stride;  // between rows
    bool transposed = false;
};

// out (m, n) = factor * a (m, k) b (k, n) + keep * out, on the calling thread.
template <class Float>
void multiply(Matrix<Float> a, Matrix<Float> b, std::size_t m, std::size_t n, std::size_t k, Float* out,
              std::size_t stride, Float factor = 1, Float keep = 0) {
    // BLAS is column-major: it sees transposes, so b comes first.
    char of_a = a.transposed ? 'T' : 'N', of_b = b.transposed ? 'T' : 'N';
    int rows = static_cast<int>(m), columns = static_cast<int>(n), depth = static_cast<int>(k);
    int stride_a = static_cast<int>(a.stride), stride_b = static_cast<int>(b.stride);
    int stride_out = static_cast<int>(stride);
    blas<Float>.gemm(&of_b, &of_a, &columns, &rows, &depth, &factor, const_cast<Float*>(b.data), &stride_b,
                     const_cast<Float*>(a.data), &stride_a, &keep, out, &stride_out);
}

// The lower triangle of out (d, d) = x' x for x (n, d), on the calling thread.
template <class Float>
void multiply_by_itself(const Float* x, std::size_t stride, std::size_t n, std::size_t d, Float* out) {
    char upper = 'U', not_transposed = 'N';  // of what BLAS sees
    int size = static_cast<int>(d), depth = static_cast<int>(n), lda = static_cast<int>(stride);
    Float one = 1, zero = 0;
    blas<Float>.syrk(&upper, &not_transposed, &size, &depth, &one, const_cast<Float*>(x), &lda, &zero, out, &size);
}

// Solves L x = b, or L' x = b if transposed, in place, for each of n rows b; L (size, size) is lower triangular.
template <class Float>
void solve_rows(const Float* lower, std::size_t stride, std::size_t size, bool transposed, Float* rows, std::size_t n) {
    char side = 'L', upper = 'U', trans = transposed ? 'N' : 'T', diagonal = 'N';  // of what BLAS sees
    int m = static_cast<int>(size), columns = static_cast<int>(n), lda = static_cast<int>(stride);
    Float one = 1;
    blas<Float>.trsm(&side, &upper, &trans, &diagonal, &m, &columns, &one, const_cast<Float*>(lower), &lda, rows, &lda);
}

// Rows of each part of n: 16 parts of up to 256 rows; below 512 fewer parts, of 64 rows, because BLAS prepares the
// other factor for each part anew. It depends on the work alone, never on the number of
// threads, so that results do not.
inline std::size_t rows_per_part(std::size_t n) {
    if (n < 512) return 64;
    const std::size_t sixteenth = (n / 16 + 15) / 16 * 16;
    return sixteenth > 256 ? 256 : sixteenth;
}

}  // namespace bitclass
