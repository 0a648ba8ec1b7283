// Any processor: 16-byte vectors, compiled to whatever instructions there are.

constexpr std::size_t kVectorBytes = 16;
#include "vectors.hpp"

template <class V>
inline V fused(V a, V b, V c) {
    return a * b + c;
}
constexpr std::size_t kProductRows = 4;

struct Isa : IsaDefaults<Isa> {
    static Bytes count(Bytes bytes) {
        using Words = Vector<std::uint32_t>;  // shifts of bytes are slow
        Words x = (Words)bytes;
        x -= (x >> 1) & 0x55555555u;
        x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
        return (Bytes)((x + (x >> 4)) & 0x0f0f0f0fu);
    }

    static std::int32_t product_of(const std::uint64_t* row, std::size_t length, const std::int8_t* activations) {
        std::int32_t sum = 0;
        for (std::size_t w = 0; w < length; ++w) {
            for (std::size_t k = 0; k < 64; ++k) {
                sum += activations[64 * w + k] * (2 * static_cast<std::int32_t>(row[w] >> k & 1) - 1);
            }
        }
        return sum;
    }
};

float float_of(Half x) {
    // The exponent and fraction of a half, shifted to their positions in a float, are too small by a power of
    // two, because the biases differ; the product with it is exact, including subnormals.
    const std::uint32_t magnitude = (x.bits & 0x7fffu) << 13;
    float value;
    std::memcpy(&value, &magnitude, sizeof(value));
    value *= 0x1p112f;
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if ((x.bits & 0x7c00u) == 0x7c00u) bits = magnitude | 0x7f800000u;  // infinities and NaN
    bits |= (x.bits & 0x8000u) << 16;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

Floats floats_of(const Half* x) { return Floats{float_of(x[0]), float_of(x[1]), float_of(x[2]), float_of(x[3])}; }

std::uint8_t bits_of_8(const float* scores, const float* intercept) { return reached(scores, intercept, 1.0f); }

// Compilers have instructions for sums of products of 16-bit integers.
struct Tile : ColumnTile<std::int16_t> {
    static void multiply(const Row* row, std::size_t n_padded, const Weight* panel, std::size_t columns,
                         const std::int32_t* starts, std::int32_t* sums) {
        for (std::size_t c = 0; c < columns; ++c, panel += n_padded) {
            std::int32_t sum = starts[c];
            for (std::size_t j = 0; j < n_padded; ++j) sum += std::int32_t{row[j]} * panel[j];
            sums[c] = sum;
        }
    }

    static void quantise(const Floats* scaled, Row* quantised) {
        // Floats of this magnitude are integers: adding it rounds to the nearest, ties to even.
        constexpr float kRounder = 0x1.8p23f;
        float entries[kStep];
        std::memcpy(entries, scaled, sizeof entries);
        for (std::size_t j = 0; j < kStep; ++j) {
            const float least = (entries[j] > -kQuantisedMax ? entries[j] : -kQuantisedMax) + kRounder;  // also for NaN
            quantised[j] =
                static_cast<Row>((least < kRounder + kQuantisedMax ? least : kRounder + kQuantisedMax) - kRounder);
        }
    }
};
