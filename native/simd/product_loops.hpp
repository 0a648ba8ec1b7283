// The inner loops of matrix products: see multiply.hpp.

// A tile of kProductRows rows and two vectors of columns is summed in registers.
template <class Float>
struct ProductTile {
    using Lanes = Vector<Float>;
    static constexpr std::size_t kWidth = kVectorBytes / sizeof(Float), kRows = kProductRows, kColumns = 2 * kWidth;

    static void pack_columns(Matrix<Float> b, std::size_t depth, std::size_t n, Float* packed) {
        for (std::size_t k = 0; k < depth; ++k, packed += kColumns) {
            if (!b.transposed && n == kColumns) {
                std::memcpy(packed, b.data + k * b.stride, kColumns * sizeof(Float));
                continue;
            }
            const std::size_t along = b.transposed ? b.stride : 1, at = k * (b.transposed ? 1 : b.stride);
            for (std::size_t j = 0; j < n; ++j) packed[j] = b.data[at + j * along];
            for (std::size_t j = n; j < kColumns; ++j) packed[j] = 0;
        }
    }

    static void pack_rows(const Float* transposed, std::size_t stride, std::size_t depth, std::size_t n,
                          Float* packed) {
        for (std::size_t k = 0; k < depth; ++k, packed += kRows, transposed += stride) {
            if (n == kRows) {
                std::memcpy(packed, transposed, kRows * sizeof(Float));
                continue;
            }
            for (std::size_t i = 0; i < kRows; ++i) packed[i] = i < n ? transposed[i] : Float{0};
        }
    }

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

    static void multiply(const Float* a, std::size_t row, std::size_t step, const Float* packed, std::size_t depth,
                         Float* out, std::size_t stride, std::size_t m, std::size_t n, Store how) {
        alignas(64) Float sums[kRows][kColumns];
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

    static constexpr ProductKernels<Float> kKernels = {kRows, kColumns, &pack_columns, &pack_rows, &multiply};
};

constexpr BothProductKernels kProductKernels = {ProductTile<float>::kKernels, ProductTile<double>::kKernels};
