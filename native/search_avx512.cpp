#include <immintrin.h>

#include <cstring>
#include <limits>

#include "search.hpp"

namespace bitclass::avx512 {

#include "search_scan.hpp"

namespace {

struct Lanes {
    using Register = __m512i;
    using Count = __m512i;
    static constexpr std::size_t kWidth = 16;
    static constexpr std::size_t kWordsACount = 1 << 20;

    static Register load(const std::uint32_t* at) { return _mm512_load_si512(at); }
    static Register broadcast(std::uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }
    static Register differing(Register a, Register b) { return _mm512_xor_si512(a, b); }
    static Register add(Register a, Register b) { return _mm512_add_epi32(a, b); }
    static Count none() { return _mm512_setzero_si512(); }
    static Count add_bits(Count count, Register bits) { return _mm512_add_epi32(count, _mm512_popcnt_epi32(bits)); }
    static Register total(Count count) { return count; }

    template <int kWords>
    static Register key(Register distances, Register step) {
        if constexpr (kWords > 0) {
            // Short distances fit in the low 16 bits of a lane: multiply and add in one instruction.
            return _mm512_dpwssd_epi32(step, distances, _mm512_set1_epi32(1 << kStepBits));
        } else {
            return _mm512_or_si512(_mm512_slli_epi32(distances, kStepBits), step);
        }
    }

    static Register smaller(Register a, Register b) { return _mm512_min_epu32(a, b); }
    static std::uint32_t lowest(Register keys, std::size_t* lane) {
        const std::uint32_t key = _mm512_reduce_min_epu32(keys);
        *lane = static_cast<std::size_t>(__builtin_ctz(_mm512_cmpeq_epi32_mask(keys, broadcast(key))));
        return key;
    }
    static std::uint32_t below(Register a, Register b) { return _mm512_cmplt_epu32_mask(a, b); }
    static Register product(Register distances, std::int32_t n_bits) {
        return _mm512_sub_epi32(_mm512_set1_epi32(n_bits), _mm512_slli_epi32(distances, 1));
    }
    static void store(std::uint32_t* at, Register values) { _mm512_storeu_si512(at, values); }
    static void narrow(std::uint8_t* at, Register distances) {
        _mm_store_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(distances));
    }
    static void narrow(std::uint16_t* at, Register distances) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(distances));
    }
    static void narrow(std::uint32_t* at, Register distances) { _mm512_store_si512(at, distances); }
    static std::uint64_t below_of_64(const std::uint8_t* distances, std::uint8_t limit) {
        return _mm512_cmplt_epu8_mask(_mm512_load_si512(distances), _mm512_set1_epi8(static_cast<char>(limit)));
    }
    static std::uint64_t below_of_64(const std::uint16_t* distances, std::uint16_t limit) {
        const __m512i limits = _mm512_set1_epi16(static_cast<short>(limit));
        const std::uint64_t high = _mm512_cmplt_epu16_mask(_mm512_load_si512(distances + 32), limits);
        return high << 32 | _mm512_cmplt_epu16_mask(_mm512_load_si512(distances), limits);
    }
    static std::uint64_t below_of_64(const std::uint32_t* distances, std::uint32_t limit) {
        return avx512::below_of_64(distances, limit);
    }
    static std::size_t compress(std::uint32_t* at, Register values, std::uint32_t mask) {
        // A register that is stored whole: storing some lanes is slow on some processors.
        _mm512_storeu_si512(at, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), values));
        return static_cast<std::size_t>(__builtin_popcount(mask));
    }
    static std::int32_t sum_of_set(const std::uint32_t* words, std::size_t n_words, const std::int8_t* activations) {
        __m512i sum = _mm512_setzero_si512();
        for (std::size_t w = 0; w < n_words; w += 2) {
            const std::uint64_t high = w + 1 < n_words ? words[(w + 1) * kWidth] : 0;
            const __m512i set = _mm512_maskz_loadu_epi8(high << 32 | words[w * kWidth], activations + 32 * w);
            sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), set);
        }
        return _mm512_reduce_add_epi32(sum);
    }
};

}  // namespace

const SearchKernels search_kernels = {Lanes::kWidth, &nearest<Lanes>, &scores<Lanes>, &collect<Lanes>, &rescore<Lanes>};

}  // namespace bitclass::avx512
