// Matrix products on the pool. Each entry is summed in one order, whatever tile it lies in: results depend neither on
// tiles nor on the number of threads.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace bitclass {

// A matrix in row-major order, or the transpose of one.
template <class Float>
struct Matrix {
    const Float* data;
    std::size_t stride;  // between rows
    bool transposed = false;

    // The matrix without its first rows and columns.
    Matrix from(std::size_t row, std::size_t column) const {
        return {data + (transposed ? column * stride + row : row * stride + column), stride, transposed};
    }
};

enum class Store { kSet, kAdd, kSubtract };

// The loops of one SIMD level.
template <class Float>
struct ProductKernels {
    std::size_t rows, columns;  // of a tile that is kept in registers
    // Distance between packed rows of this depth.
    std::size_t (*row_stride)(std::size_t depth);
    // Copies the columns of b (depth, n) in groups of `columns`, the last one filled up with zeros.
    void (*pack_columns)(Matrix<Float> b, std::size_t depth, std::size_t n, Float* packed);
    // Copies the rows of a (m, depth): each one, or those of a transposed matrix in groups of `rows`.
    void (*pack_rows)(Matrix<Float> a, std::size_t depth, std::size_t m, Float* packed);
    // out (m, n) gets the product of m <= rows packed rows and a group of n packed columns.
    void (*multiply)(const Float* a, bool a_transposed, const Float* packed, std::size_t depth, Float* out,
                     std::size_t stride, std::size_t m, std::size_t n, Store store);
};

struct BothProductKernels : ProductKernels<float>, ProductKernels<double> {};

// Selects the loops of a level instead of those of the fastest one, for tests.
void use_products(const BothProductKernels& products);

// The right factor of a product, packed once for all threads.
template <class Float>
class PackedMatrix {
public:
    // b (depth, n)
    PackedMatrix(Matrix<Float> b, std::size_t depth, std::size_t n, int n_threads);

    // out (m, end - begin) gets a (m, depth) times the columns from begin to end, on the calling thread; begin is a
    // multiple of columns_together().
    void multiply(Matrix<Float> a, std::size_t m, std::size_t begin, std::size_t end, Float* out, std::size_t stride,
                  Store store = Store::kSet) const;
    void multiply(Matrix<Float> a, std::size_t m, Float* out, std::size_t stride) const {
        multiply(a, m, 0, n_, out, stride);
    }

    static std::size_t columns_together();

private:
    struct Free {
        void operator()(Float* memory) const { ::operator delete(memory, std::align_val_t{64}); }
    };
    std::size_t depth_, n_;
    std::unique_ptr<Float, Free> packed_;
};

// Rows per tile of m rows that are divided into a number of column tiles too: a multiple of those that are summed in
// registers, and such that there are several tiles per thread.
template <class Float>
std::size_t rows_per_tile(std::size_t m, std::size_t n_column_tiles, int n_threads);

// out (m, n), with rows `stride` apart, gets a (m, k) b (k, n). If `lower`, only entries whose column is at most their
// row are needed.
template <class Float>
void multiply(Matrix<Float> a, Matrix<Float> b, std::size_t m, std::size_t n, std::size_t k, Float* out,
              std::size_t stride, Store store, bool lower, int n_threads);

}  // namespace bitclass
