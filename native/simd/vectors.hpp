// The compiler's own vector types, and default implementations for operations that an instruction set lacks.
//
// `Isa`, defined by the header of each level, provides, or inherits from IsaDefaults:
//   count            the set bits of each byte of a vector
//   Counts           Bytes, or Shorts if it also counts the set bits of 16-bit lanes
//   kGroupsTogether  groups of classes that share a load of the queries
//   add_saturated    sums of bytes; 255 if larger
//   below            mask of the distances, of 64, that are below a limit
//   collect          writes the distances selected by a mask contiguously
//   lowest_bits      the lowest n bits of a mask
//   product_of       the inner product of a class, as a row of bits, and activations
//   products         the same for 16 classes
// A level also defines `Tile`, see encode_loops.hpp, bits_of_8, and overloads of floats_of.

template <class Lane>
using Vector __attribute__((vector_size(kVectorBytes))) = Lane;
using Bytes = Vector<std::uint8_t>;
using Shorts = Vector<std::uint16_t>;
using Floats = Vector<float>;
using Doubles = Vector<double>;
using Integers = Vector<std::int32_t>;
constexpr std::size_t kFloats = kVectorBytes / sizeof(float);

// Registers that hold one lane for each class of a group.
template <class Lane>
constexpr std::size_t kParts = kGroupClasses * sizeof(Lane) / kVectorBytes;

template <class V>
inline V load(const void* from) {
    V vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}

template <class V>
inline void store(void* to, V vector) {
    std::memcpy(to, &vector, sizeof vector);
}

// Converts numbers of another type to a vector of floats.
template <class Number>
inline Floats floats_of(const Number* from) {
    using Numbers __attribute__((vector_size(kFloats * sizeof(Number)))) = Number;
    Numbers numbers;
    std::memcpy(&numbers, from, sizeof numbers);
    return __builtin_convertvector(numbers, Floats);
}

// Mask of the scores or sums, of up to 8, that are at least 0.
template <class Score, class Shift>
inline std::uint8_t reached(const Score* scores, const Shift* shifts, Shift factor, std::size_t n = 8) {
    unsigned bits = 0;
    for (std::size_t k = 0; k < n; ++k) bits |= unsigned{scores[k] + shifts[k] * factor >= 0} << k;
    return static_cast<std::uint8_t>(bits);
}

template <class Isa>
struct IsaDefaults {
    static constexpr int kGroupsTogether = 1;
    using Counts = Bytes;
    static Bytes add_saturated(Bytes a, Bytes b) {
        const Bytes most = ~b;
        return (a < most ? a : most) + b;
    }
    template <class Lane, class V>
    static std::uint64_t below(const V* distances, Lane limit) {
        Lane of_lane[kGroupClasses];
        std::memcpy(of_lane, distances, sizeof of_lane);
        std::uint8_t flags[kGroupClasses];
        for (std::size_t i = 0; i < kGroupClasses; ++i) flags[i] = of_lane[i] < limit;
        std::uint64_t mask = 0;
        for (int byte = 0; byte < 8; ++byte) {
            // The product gathers the lowest bits of eight bytes into the highest byte.
            const auto eight = load<std::uint64_t>(flags + 8 * byte);
            mask |= (eight * 0x0102040810204080ull >> 56) << 8 * byte;
        }
        return mask;
    }
    // Writes the distances selected by a mask contiguously, their lanes and the step; may write past them.
    template <class Lane>
    static std::size_t collect(const Lane* distances, std::uint64_t mask, std::size_t step, Lane* near,
                               std::uint8_t* lanes, std::uint8_t* steps) {
        std::size_t n = 0;
        for (; mask != 0; mask &= mask - 1, ++n) {
            lanes[n] = static_cast<std::uint8_t>(__builtin_ctzll(mask));
            steps[n] = static_cast<std::uint8_t>(step);
            near[n] = distances[lanes[n]];
        }
        return n;
    }
    static std::uint64_t lowest_bits(std::uint64_t mask, std::size_t n) {
        std::uint64_t rest = mask;
        for (; n > 0; --n) rest &= rest - 1;
        return mask & ~rest;
    }
    static void products(const std::uint64_t* rows, std::size_t length, const std::uint32_t* classes,
                         const std::int8_t* activations, std::int32_t* products) {
        for (int i = 0; i < 16; ++i) products[i] = Isa::product_of(rows + classes[i] * length, length, activations);
    }
};

// A Tile of one row, multiplied column by column.
template <class Number>
struct ColumnTile {
    using Row = Number;
    using Weight = Number;
    static constexpr int kRowOffset = 0;
    static constexpr std::size_t kRows = 1;
    static constexpr std::size_t kMinColumns = 8;
    static constexpr std::size_t kColumns = 8;
    static constexpr std::size_t kStep = 16;
    static constexpr std::size_t kTogether = 0;

    static std::uint8_t sign_bits(const std::int32_t* sums, const double* thresholds, float factor) {
        return reached(sums, thresholds, double{factor});
    }
};

// Rows whose largest entry is smaller, or not finite, are encoded as zeros.
constexpr float kMinEntry = 1e-30f;
constexpr float kMaxEntry = 3.4028234e38f;
constexpr float kQuantisedMax = 127.0f;
// Standardised entries are clipped at this magnitude, so that no single one costs a row its digits.
constexpr float kMaxDeviations = 32.0f;
constexpr std::int32_t kMagnitudeBits = 0x7fffffff;  // of a float: all but its sign
