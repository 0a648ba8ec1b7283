// Any processor: vectors of 16 bytes as the compiler makes them.

constexpr std::size_t kVectorBytes = 16;
#include "vectors.hpp"

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

    static Floats widen(const std::int8_t* from) {
        return Floats{static_cast<float>(from[0]), static_cast<float>(from[1]), static_cast<float>(from[2]),
                      static_cast<float>(from[3])};
    }
};

float float_of(double x) { return static_cast<float>(x); }
float float_of(Half x) {
    // The exponent and fraction of a half, moved to their places in a float, are too small by a
    // power of two that makes up for the different bias; the product is exact, subnormals included.
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

template <class Source>
Floats floats_of(const Source* x) {
    return Floats{float_of(x[0]), float_of(x[1]), float_of(x[2]), float_of(x[3])};
}
Floats floats_of(const float* x) { return load<Floats>(x); }

// Column by column: compilers know sums of products of 16-bit numbers.
struct Tile {
    using Row = std::int16_t;
    using Weight = std::int16_t;
    static constexpr int kRowOffset = 0;
    static constexpr std::size_t kRows = 1;
    static constexpr std::size_t kMinColumns = 8;
    static constexpr std::size_t kColumns = 8;
    static constexpr std::size_t kStep = 16;
    static constexpr std::size_t kTogether = 0;

    static void multiply(const Row* row, std::size_t n_padded, const Weight* panel, std::size_t columns,
                         const std::int32_t* starts, std::int32_t* sums) {
        for (std::size_t c = 0; c < columns; ++c, panel += n_padded) {
            std::int32_t sum = starts[c];
            for (std::size_t j = 0; j < n_padded; ++j) sum += std::int32_t{row[j]} * panel[j];
            sums[c] = sum;
        }
    }

    static void quantise(const Floats* scaled, Row* quantised) {
        // Floats of this size are integers: adding it rounds to the nearest, ties to even.
        constexpr float kRounder = 0x1.8p23f;
        float entries[kStep];
        std::memcpy(entries, scaled, sizeof entries);
        for (std::size_t j = 0; j < kStep; ++j) {
            const float least = (entries[j] > -kQuantisedMax ? entries[j] : -kQuantisedMax) + kRounder;  // of NaN too
            quantised[j] =
                static_cast<Row>((least < kRounder + kQuantisedMax ? least : kRounder + kQuantisedMax) - kRounder);
        }
    }

    static std::uint8_t sign_bits(const std::int32_t* sums, const double* thresholds, float factor) {
        return reached(sums, thresholds, double{factor});
    }
};

struct Signs {
    template <class Float>
    static std::uint8_t bits_of_8(const Float* scores, const Float* intercept) {
        return reached(scores, intercept, Float{1});
    }
    static constexpr std::size_t kHalves = 4;
    static void widen(const Half* values, float* wide) { store(wide, floats_of(values)); }
};
