// The inner loops of matrix products: see multiply.hpp.

// A tile of kProductRows rows and two vectors of columns is summed in registers.
template <class Float>
struct ProductTile {
    using Lanes = Vector<Float>;
    static constexpr std::size_t kWidth = kVectorBytes / sizeof(Float), kRows = kProductRows, kColumns = 2 * kWidth;

    // Groups of columns of a matrix (depth, n) with rows `stride` apart.
    template <std::size_t kTogether>
    static void pack(const Float* from, std::size_t stride, std::size_t depth, std::size_t n, Float* packed) {
        for (std::size_t k = 0; k < depth; ++k, from += stride) {
            Float* to = packed + k * kTogether;
            std::size_t j = 0;
            for (; j + kTogether <= n; j += kTogether, to += depth * kTogether) {
                std::memcpy(to, from + j, kTogether * sizeof(Float));
            }
            for (std::size_t i = 0; j < n && i < kTogether; ++i) to[i] = j + i < n ? from[j + i] : Float{0};
        }
    }

    static void pack_columns(Matrix<Float> b, std::size_t depth, std::size_t n, Float* packed) {
        if (!b.transposed) return pack<kColumns>(b.data, b.stride, depth, n, packed);
        for (std::size_t j = 0; j < n; j += kColumns, packed += depth * kColumns) {
            const std::size_t columns = n - j < kColumns ? n - j : kColumns;
            if (columns < kColumns) std::memset(packed, 0, depth * kColumns * sizeof(Float));
            for (std::size_t i = 0; i < columns; ++i) {
                const Float* const from = b.data + (j + i) * b.stride;
                for (std::size_t k = 0; k < depth; ++k) packed[k * kColumns + i] = from[k];
            }
        }
    }

    static void pack_rows(Matrix<Float> a, std::size_t depth, std::size_t m, Float* packed) {
        if (a.transposed) return pack<kRows>(a.data, a.stride, depth, m, packed);
        for (std::size_t i = 0; i < m; ++i) {
            std::memcpy(packed + i * row_stride(depth), a.data + i * a.stride, depth * sizeof(Float));
        }
    }

    // Not a multiple of a page: such rows would share the same places of a cache.
    static std::size_t row_stride(std::size_t depth) { return depth + kWidth; }

    template <std::size_t kN>
    static void sum(const Float* a, std::size_t row, std::size_t step, const Float* packed, std::size_t depth,
                    Float (*sums)[kColumns]) {
        Lanes low[kN], high[kN];
#pragma GCC unroll 16
        for (std::size_t i = 0; i < kN; ++i) low[i] = high[i] = Lanes{};
        for (std::size_t k = 0; k < depth; ++k, a += step, packed += kColumns) {
            const Lanes left = load<Lanes>(packed), right = load<Lanes>(packed + kWidth);
#pragma GCC unroll 16
            for (std::size_t i = 0; i < kN; ++i) {
                const Lanes factor = a[i * row] - Lanes{};
                low[i] = fused(factor, left, low[i]);
                high[i] = fused(factor, right, high[i]);
            }
        }
#pragma GCC unroll 16
        for (std::size_t i = 0; i < kN; ++i) {
            store(sums[i], low[i]);
            store(sums[i] + kWidth, high[i]);
        }
    }

    static void multiply(const Float* a, bool a_transposed, const Float* packed, std::size_t depth, Float* out,
                         std::size_t stride, std::size_t m, std::size_t n, Store how) {
        alignas(64) Float sums[kRows][kColumns];
        const std::size_t row = a_transposed ? 1 : row_stride(depth), step = a_transposed ? kRows : 1;
        if (m == kRows) {
            sum<kRows>(a, row, step, packed, depth, sums);
        } else {
            std::size_t i = 0;
            for (; i + 4 <= m; i += 4) sum<4>(a + i * row, row, step, packed, depth, sums + i);
            for (; i < m; ++i) sum<1>(a + i * row, row, step, packed, depth, sums + i);
        }
        for (std::size_t i = 0; i < m; ++i, out += stride) {
            if (how == Store::kSet) {
                for (std::size_t j = 0; j < n; ++j) out[j] = sums[i][j];
            } else if (how == Store::kAdd) {
                for (std::size_t j = 0; j < n; ++j) out[j] += sums[i][j];
            } else {
                for (std::size_t j = 0; j < n; ++j) out[j] -= sums[i][j];
            }
        }
    }

    static constexpr ProductKernels<Float> kKernels = {kRows, kColumns, &row_stride, &pack_columns, &pack_rows, &multiply};
};

constexpr BothProductKernels kProductKernels = {ProductTile<float>::kKernels, ProductTile<double>::kKernels};
