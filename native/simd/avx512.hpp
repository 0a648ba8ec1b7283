// AVX-512 with VPOPCNTDQ, BITALG, VNNI and VBMI2, and BMI2.

constexpr std::size_t kVectorBytes = 64;
#include "vectors.hpp"

// a * b + c with one rounding; rows of a tile of a product that fit in the registers.
inline Floats fused(Floats a, Floats b, Floats c) { return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
inline Doubles fused(Doubles a, Doubles b, Doubles c) {
    return (Doubles)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
constexpr std::size_t kProductRows = 12;

struct LaneNumbers {
    std::uint8_t of[64];
    constexpr LaneNumbers() : of{} {
        for (int i = 0; i < 64; ++i) of[i] = static_cast<std::uint8_t>(i);
    }
};

struct Isa : IsaDefaults<Isa> {
    static constexpr int kGroupsTogether = 2;

    using Counts = Shorts;
    static Bytes count(Bytes bytes) { return (Bytes)_mm512_popcnt_epi8((__m512i)bytes); }
    static Shorts count(Shorts shorts) { return (Shorts)_mm512_popcnt_epi16((__m512i)shorts); }
    static Bytes add_saturated(Bytes a, Bytes b) { return (Bytes)_mm512_adds_epu8((__m512i)a, (__m512i)b); }

    using IsaDefaults<Isa>::below;
    static std::uint64_t below(const Bytes* distances, std::uint8_t limit) {
        return _mm512_cmplt_epu8_mask((__m512i)*distances, _mm512_set1_epi8(static_cast<char>(limit)));
    }
    static std::uint64_t below(const Vector<std::uint16_t>* distances, std::uint16_t limit) {
        const __m512i limits = _mm512_set1_epi16(static_cast<short>(limit));
        const std::uint64_t high = _mm512_cmplt_epu16_mask((__m512i)distances[1], limits);
        return high << 32 | _mm512_cmplt_epu16_mask((__m512i)distances[0], limits);
    }

    using IsaDefaults<Isa>::collect;
    static std::size_t collect(const std::uint8_t* distances, std::uint64_t mask, std::size_t step, std::uint8_t* near,
                               std::uint8_t* lanes, std::uint8_t* steps) {
        alignas(64) static constexpr LaneNumbers kNumbers;
        const auto n = static_cast<std::size_t>(__builtin_popcountll(mask));
        const __m512i values = _mm512_maskz_compress_epi8(mask, _mm512_load_si512(distances));
        const __m512i places = _mm512_maskz_compress_epi8(mask, _mm512_load_si512(kNumbers.of));
        const __m512i all_steps = _mm512_set1_epi8(static_cast<char>(step));
        if (__builtin_expect(n <= 16, 1)) {  // short stores seldom straddle two cache lines
            _mm_storeu_si128(reinterpret_cast<__m128i*>(near), _mm512_castsi512_si128(values));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes), _mm512_castsi512_si128(places));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(steps), _mm512_castsi512_si128(all_steps));
        } else {
            _mm512_storeu_si512(near, values);
            _mm512_storeu_si512(lanes, places);
            _mm512_storeu_si512(steps, all_steps);
        }
        return n;
    }
    static std::uint64_t lowest_bits(std::uint64_t mask, std::size_t n) {
        return _pdep_u64(n < 64 ? (std::uint64_t{1} << n) - 1 : ~std::uint64_t{0}, mask);
    }

    // Adds the activations of 64 bits, negated where the bit is not set.
    static __m512i add_products(__m512i sum, std::uint64_t bits, const std::int8_t* activations) {
        const __m512i values = _mm512_loadu_si512(activations);
        const __m512i negated = _mm512_sub_epi8(_mm512_setzero_si512(), values);
        return _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_mask_mov_epi8(negated, bits, values));
    }
    static std::int32_t product_of(const std::uint64_t* row, std::size_t length, const std::int8_t* activations) {
        __m512i sum = _mm512_setzero_si512();
        for (std::size_t w = 0; w < length; ++w) sum = add_products(sum, row[w], activations + 64 * w);
        return _mm512_reduce_add_epi32(sum);
    }
    // Sums over the lanes of each quarter, for four registers.
    static __m512i sums_in_quarters(const __m512i* values) {
        const __m512i low =
            _mm512_add_epi32(_mm512_unpacklo_epi32(values[0], values[1]), _mm512_unpackhi_epi32(values[0], values[1]));
        const __m512i high =
            _mm512_add_epi32(_mm512_unpacklo_epi32(values[2], values[3]), _mm512_unpackhi_epi32(values[2], values[3]));
        return _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    }
    static __m512i sum_of_neighbours(__m512i a, __m512i b) {
        return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
    }
    // kLength = 0 means any length.
    template <std::size_t kLength>
    static void products_of(const std::uint64_t* rows, std::size_t length, const std::uint32_t* classes,
                            const std::int8_t* activations, std::int32_t* products) {
        if constexpr (kLength > 0) length = kLength;
        __m512i quarters[4];
#pragma GCC unroll 4
        for (int four = 0; four < 4; ++four) {
            __m512i sum[4] = {};
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const std::uint64_t* const row = rows + classes[4 * four + i] * length;
#pragma GCC unroll 4
                for (std::size_t w = 0; w < length; ++w) sum[i] = add_products(sum[i], row[w], activations + 64 * w);
            }
            quarters[four] = sums_in_quarters(sum);
        }
        const __m512i low = sum_of_neighbours(quarters[0], quarters[1]);
        const __m512i high = sum_of_neighbours(quarters[2], quarters[3]);
        _mm512_storeu_si512(products, sum_of_neighbours(low, high));
    }
    static void products(const std::uint64_t* rows, std::size_t length, const std::uint32_t* classes,
                         const std::int8_t* activations, std::int32_t* products) {
        switch (length) {
            case 1: return products_of<1>(rows, length, classes, activations, products);
            case 2: return products_of<2>(rows, length, classes, activations, products);
            case 4: return products_of<4>(rows, length, classes, activations, products);
            default: return products_of<0>(rows, length, classes, activations, products);
        }
    }
};

Floats floats_of(const std::int8_t* x) {
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
}
Floats floats_of(const Half* x) {
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}

std::uint8_t bits_of_8(const float* scores, const float* intercept) {
    const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(scores), _mm256_loadu_ps(intercept));
    return _mm256_cmp_ps_mask(sum, _mm256_setzero_ps(), _CMP_GE_OQ);
}

// VNNI multiplies unsigned by signed bytes, four features at a time.
struct Tile {
    using Row = std::uint8_t;
    using Weight = std::int8_t;
    static constexpr int kRowOffset = 128;
    static constexpr std::size_t kRows = 6;
    static constexpr std::size_t kMinColumns = 16;  // of a register
    static constexpr std::size_t kColumns = 64;
    static constexpr std::size_t kStep = 64;
    static constexpr std::size_t kTogether = 4;

    static Integers add_products(Integers sums, Integers features, Integers weights) {
        return (Integers)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)features, (__m512i)weights);
    }

    static void quantise(const Floats* scaled, Row* quantised) {
        __m512i of[4];
        for (int part = 0; part < 4; ++part) of[part] = _mm512_cvtps_epi32((__m512)scaled[part]);
        // Packing works within 128-bit lanes; the permutation restores the order of the quarters.
        const __m512i mixed = _mm512_packs_epi16(_mm512_packs_epi32(of[0], of[1]), _mm512_packs_epi32(of[2], of[3]));
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        const __m512i offset = _mm512_set1_epi8(static_cast<char>(kRowOffset));
        _mm512_store_si512(quantised, _mm512_xor_si512(_mm512_permutexvar_epi32(order, mixed), offset));
    }

    static std::uint8_t sign_bits(const std::int32_t* sums, const double* thresholds, float factor) {
        const __m512d sum = _mm512_cvtepi32_pd(_mm256_load_si256(reinterpret_cast<const __m256i*>(sums)));
        const __m512d shift = _mm512_mul_pd(_mm512_load_pd(thresholds), _mm512_set1_pd(factor));
        return _mm512_cmp_pd_mask(_mm512_add_pd(sum, shift), _mm512_setzero_pd(), _CMP_GE_OQ);
    }
};
