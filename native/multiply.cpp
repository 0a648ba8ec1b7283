#include "multiply.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "dispatch.hpp"
#include "pool.hpp"

namespace bitclass {

namespace {

// Depth of the products that are summed in registers: packed columns of it stay in the first cache.
constexpr std::size_t kDepth = 256;
// Rows per tile, which stay in the second cache, and columns, where there are few rows.
constexpr std::size_t kRowsPerTile = 192, kColumnsPerTile = 512;
constexpr std::size_t kPanelsPerChunk = 8;
// Smaller matrices are packed by the calling thread: to wake others takes longer.
constexpr std::size_t kShared = std::size_t{1} << 17;

// Of the fastest level, whichever is in use: products are defined for one machine, since rounding differs where a level
// has no fused multiplication and addition.
std::atomic<const BothProductKernels*>& products_in_use() {
    static std::atomic<const BothProductKernels*> products{&available_levels().back().kernels.products};
    return products;
}

template <class Float>
const ProductKernels<Float>& loops() {
    return *products_in_use().load(std::memory_order_relaxed);
}

// Asks for large pages, as NumPy does: those of 4 KB of a large matrix take as long to get as to pack.
void* with_large_pages(void* memory, std::size_t size) {
#if defined(__linux__)
    constexpr std::uintptr_t kPage = 4096;
    constexpr std::size_t kLarge = std::size_t{1} << 22;
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(memory), first = (begin + kPage - 1) / kPage * kPage;
    if (size >= kLarge) madvise(reinterpret_cast<void*>(first), begin + size - first, MADV_HUGEPAGE);
#else
    static_cast<void>(size);
#endif
    return memory;
}

}  // namespace

void use_products(const BothProductKernels& products) { products_in_use().store(&products); }

template <class Float>
std::size_t PackedMatrix<Float>::columns_together() {
    return loops<Float>().columns;
}

template <class Float>
PackedMatrix<Float>::PackedMatrix(Matrix<Float> b, std::size_t depth, std::size_t n, int n_threads)
    : depth_(depth), n_(n) {
    const auto& level = loops<Float>();
    const std::size_t width = level.columns, n_panels = chunks_of(n, width);
    const std::size_t size = std::max<std::size_t>(n_panels * width * depth, 1);
    void* const memory = ::operator new(size * sizeof(Float), std::align_val_t{64});
    packed_.reset(static_cast<Float*>(with_large_pages(memory, size * sizeof(Float))));
    const std::size_t n_blocks = chunks_of(depth, kDepth), per_block = chunks_of(n_panels, kPanelsPerChunk);
    parallel_for(n_blocks * per_block, depth * n < kShared ? 1 : n_threads, [&](std::size_t chunk) {
        const std::size_t begin = chunk / per_block * kDepth, size = std::min(kDepth, depth - begin);
        const std::size_t first = chunk % per_block * kPanelsPerChunk;
        const std::size_t column = first * width, end = std::min(n, column + kPanelsPerChunk * width);
        level.pack_columns(b.from(begin, column), size, end - column,
                           packed_.get() + begin * n_panels * width + column * size);
    });
}

template <class Float>
void PackedMatrix<Float>::multiply(Matrix<Float> a, std::size_t m, std::size_t begin, std::size_t end, Float* out,
                                   std::size_t stride, Store store) const {
    const auto& level = loops<Float>();
    const std::size_t padded = chunks_of(n_, level.columns) * level.columns;
    const std::size_t padded_rows = chunks_of(m, level.rows) * level.rows;
    std::vector<Float> rows(padded_rows * level.row_stride(std::min(kDepth, depth_)));
    if (depth_ == 0 && store == Store::kSet) {
        for (std::size_t i = 0; i < m; ++i) std::fill_n(out + i * stride, end - begin, Float{0});
    }
    for (std::size_t k = 0; k < depth_; k += kDepth) {
        const std::size_t depth = std::min(kDepth, depth_ - k);
        const Store how = store == Store::kSet && k > 0 ? Store::kAdd : store;
        level.pack_rows(a.from(0, k), depth, m, rows.data());
        const std::size_t step = a.transposed ? depth : level.row_stride(depth);  // between rows of the packed ones
        for (std::size_t column = begin; column < end; column += level.columns) {
            const Float* packed = packed_.get() + k * padded + column * depth;
            const std::size_t n = std::min(level.columns, end - column);
            for (std::size_t i = 0; i < m; i += level.rows) {
                level.multiply(rows.data() + i * step, a.transposed, packed, depth, out + i * stride + (column - begin),
                               stride, std::min(level.rows, m - i), n, how);
            }
        }
    }
}

template <class Float>
std::size_t rows_per_tile(std::size_t m, std::size_t n_column_tiles, int n_threads) {
    const std::size_t least = loops<Float>().rows, wanted = 4 * static_cast<std::size_t>(std::max(n_threads, 1));
    std::size_t n_rows = kRowsPerTile;
    while (n_threads > 1 && n_rows > least && chunks_of(m, n_rows) * n_column_tiles < wanted) n_rows /= 2;
    return chunks_of(n_rows, least) * least;
}

template <class Float>
void multiply(Matrix<Float> a, Matrix<Float> b, std::size_t m, std::size_t n, std::size_t k, Float* out,
              std::size_t stride, Store store, bool lower, int n_threads) {
    const PackedMatrix<Float> packed(b, k, n, n_threads);
    const std::size_t n_columns = n_threads > 1 ? kColumnsPerTile : std::max<std::size_t>(n, 1);
    const std::size_t n_column_tiles = std::max<std::size_t>(chunks_of(n, n_columns), 1);
    const std::size_t n_rows = rows_per_tile<Float>(m, n_column_tiles, n_threads);
    const std::size_t n_row_tiles = chunks_of(m, n_rows);
    parallel_for(n_row_tiles * n_column_tiles, n_threads, [&](std::size_t tile) {
        // The largest of a lower triangle first.
        const std::size_t row = (n_row_tiles - 1 - tile / n_column_tiles) * n_rows, rows = std::min(n_rows, m - row);
        const std::size_t column = tile % n_column_tiles * n_columns;
        const std::size_t end = std::min({n, column + n_columns, lower ? row + rows : n});
        if (end <= column) return;
        packed.multiply(a.from(row, 0), rows, column, end, out + row * stride + column, stride, store);
    });
}

template class PackedMatrix<float>;
template class PackedMatrix<double>;
template std::size_t rows_per_tile<float>(std::size_t, std::size_t, int);
template std::size_t rows_per_tile<double>(std::size_t, std::size_t, int);
template void multiply(Matrix<float>, Matrix<float>, std::size_t, std::size_t, std::size_t, float*, std::size_t, Store,
                       bool, int);
template void multiply(Matrix<double>, Matrix<double>, std::size_t, std::size_t, std::size_t, double*, std::size_t,
                       Store, bool, int);

}  // namespace bitclass
