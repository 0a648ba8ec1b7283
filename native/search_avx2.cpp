#include <immintrin.h>

#include <cstring>
#include <limits>

#include "search.hpp"

namespace bitclass::avx2 {

#include "search_scan.hpp"

namespace {

struct Lanes : PlainLanes<Lanes> {
    using Register = __m256i;
    using Count = __m256i;  // of bytes
    static constexpr std::size_t kWidth = 8;
    static constexpr std::size_t kWordsPerCount = 31;  // 8 bits a byte and word, and a byte holds 255

    static Register load(const std::uint32_t* at) {
        return _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
    }
    static Register broadcast(std::uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }
    static Register differing(Register a, Register b) { return _mm256_xor_si256(a, b); }
    static Register add(Register a, Register b) { return _mm256_add_epi32(a, b); }
    static Count none() { return _mm256_setzero_si256(); }
    static Count add_bits(Count count, Register bits) {
        const __m256i of_nibble = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                                                   0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
        const __m256i nibble = _mm256_set1_epi8(15);
        const __m256i low = _mm256_shuffle_epi8(of_nibble, _mm256_and_si256(bits, nibble));
        const __m256i high = _mm256_shuffle_epi8(of_nibble, _mm256_and_si256(_mm256_srli_epi32(bits, 4), nibble));
        return _mm256_add_epi8(count, _mm256_add_epi8(low, high));
    }
    static Register total(Count count) {
        // Two counts of at most 248 fit in the signed 16 bits of the first step.
        const __m256i of_pairs = _mm256_maddubs_epi16(count, _mm256_set1_epi8(1));
        return _mm256_madd_epi16(of_pairs, _mm256_set1_epi16(1));
    }

    template <int kWords>
    static Register key(Register distances, Register step) {
        return _mm256_or_si256(_mm256_slli_epi32(distances, kStepBits), step);
    }

    static Register smaller(Register a, Register b) { return _mm256_min_epu32(a, b); }
    static std::uint32_t lowest(Register keys, std::size_t* lane) {
        __m256i least = _mm256_min_epu32(keys, _mm256_permute2x128_si256(keys, keys, 1));
        least = _mm256_min_epu32(least, _mm256_shuffle_epi32(least, 0x4e));
        least = _mm256_min_epu32(least, _mm256_shuffle_epi32(least, 0xb1));
        const __m256i equal = _mm256_cmpeq_epi32(keys, least);
        *lane = static_cast<std::size_t>(__builtin_ctz(_mm256_movemask_ps(_mm256_castsi256_ps(equal))));
        return static_cast<std::uint32_t>(_mm256_cvtsi256_si32(least));
    }
    static std::uint32_t below(Register a, Register b) {
        const __m256i at_least = _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a);
        return ~static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(at_least))) & 0xff;
    }
    static Register product(Register distances, std::int32_t n_bits) {
        return _mm256_sub_epi32(_mm256_set1_epi32(n_bits), _mm256_slli_epi32(distances, 1));
    }
    static void store(std::uint32_t* at, Register values) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), values);
    }
    using PlainLanes<Lanes>::below_of_64;
    static std::uint64_t below_of_64(const std::uint8_t* distances, std::uint8_t limit) {
        const __m256i limits = _mm256_set1_epi8(static_cast<char>(limit));
        std::uint64_t at_least = 0;
        for (int half = 0; half < 2; ++half) {
            const __m256i values = _mm256_load_si256(reinterpret_cast<const __m256i*>(distances + 32 * half));
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
            const __m256i bytes = _mm256_shuffle_epi8(broadcast(word), byte_of_lane);
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

}  // namespace

const SearchKernels search_kernels = {Lanes::kWidth, &nearest<Lanes>, &scores<Lanes>, &collect<Lanes>, &rescore<Lanes>};

}  // namespace bitclass::avx2
