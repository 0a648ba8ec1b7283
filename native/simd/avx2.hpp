// AVX2 with F16C and FMA.

constexpr std::size_t kVectorBytes = 32;
#include "vectors.hpp"

inline Floats fused(Floats a, Floats b, Floats c) { return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
inline Doubles fused(Doubles a, Doubles b, Doubles c) {
    return (Doubles)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
constexpr std::size_t kProductRows = 6;

struct Isa : IsaDefaults<Isa> {
    static Bytes count(Bytes bytes) {
        const __m256i of_nibble = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                                                   0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
        const __m256i nibble = _mm256_set1_epi8(15);
        const __m256i low = _mm256_shuffle_epi8(of_nibble, _mm256_and_si256((__m256i)bytes, nibble));
        const __m256i shifted = _mm256_srli_epi32((__m256i)bytes, 4);
        return (Bytes)_mm256_add_epi8(low, _mm256_shuffle_epi8(of_nibble, _mm256_and_si256(shifted, nibble)));
    }
    static Bytes add_saturated(Bytes a, Bytes b) { return (Bytes)_mm256_adds_epu8((__m256i)a, (__m256i)b); }

    using IsaDefaults<Isa>::below;
    static std::uint64_t below(const Bytes* distances, std::uint8_t limit) {
        const __m256i limits = _mm256_set1_epi8(static_cast<char>(limit));
        std::uint64_t at_least = 0;
        for (int half = 0; half < 2; ++half) {
            const __m256i values = (__m256i)distances[half];
            const __m256i equal = _mm256_cmpeq_epi8(_mm256_max_epu8(values, limits), values);
            at_least |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(equal))} << 32 * half;
        }
        return ~at_least;
    }

    static std::int32_t product_of(const std::uint64_t* row, std::size_t length, const std::int8_t* activations) {
        const __m256i byte_of_lane = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                                      2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
        const __m256i bit_of_lane = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
        __m256i sum = _mm256_setzero_si256();
        for (std::size_t w = 0; w < 2 * length; ++w) {
            const auto word = static_cast<std::uint32_t>(row[w / 2] >> 32 * (w % 2));
            const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(word)), byte_of_lane);
            const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of_lane), bit_of_lane);
            const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(activations + 32 * w));
            const __m256i negated = _mm256_sub_epi8(_mm256_setzero_si256(), values);
            const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_blendv_epi8(negated, values, set));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
    }
};

Floats floats_of(const std::int8_t* x) { return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadu_si64(x))); }
Floats floats_of(const Half* x) {
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}

std::uint8_t bits_of_8(const float* scores, const float* intercept) {
    const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(scores), _mm256_loadu_ps(intercept));
    return static_cast<std::uint8_t>(_mm256_movemask_ps(_mm256_cmp_ps(sum, _mm256_setzero_ps(), _CMP_GE_OQ)));
}

// The byte products of AVX2 saturate, so rows and weights are held in 16 bits, where pairs of
// products are exact.
struct Tile {
    using Row = std::int16_t;
    using Weight = std::int16_t;
    static constexpr int kRowOffset = 0;
    static constexpr std::size_t kRows = 6;
    static constexpr std::size_t kMinColumns = 8;  // of a register
    static constexpr std::size_t kColumns = 16;
    static constexpr std::size_t kStep = 16;
    static constexpr std::size_t kTogether = 2;

    static Integers add_products(Integers sums, Integers features, Integers weights) {
        return sums + (Integers)_mm256_madd_epi16((__m256i)features, (__m256i)weights);
    }

    static void quantise(const Floats* scaled, Row* quantised) {
        const __m256i low = _mm256_cvtps_epi32((__m256)scaled[0]), high = _mm256_cvtps_epi32((__m256)scaled[1]);
        // Packing works within 128-bit lanes; the permutation restores the order of the quarters.
        const __m256i mixed = _mm256_packs_epi32(low, high);
        _mm256_store_si256(reinterpret_cast<__m256i*>(quantised), _mm256_permute4x64_epi64(mixed, 0xd8));
    }

    static std::uint8_t sign_bits(const std::int32_t* sums, const double* thresholds, float factor) {
        int bits = 0;
        for (int part = 0; part < 2; ++part) {
            const __m256d sum = _mm256_cvtepi32_pd(_mm_load_si128(reinterpret_cast<const __m128i*>(sums + 4 * part)));
            const __m256d shift = _mm256_mul_pd(_mm256_load_pd(thresholds + 4 * part), _mm256_set1_pd(factor));
            const __m256d reached = _mm256_cmp_pd(_mm256_add_pd(sum, shift), _mm256_setzero_pd(), _CMP_GE_OQ);
            bits |= _mm256_movemask_pd(reached) << 4 * part;
        }
        return static_cast<std::uint8_t>(bits);
    }
};
