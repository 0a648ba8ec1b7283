#include <immintrin.h>

#include <cstring>
#include <limits>

#include "search.hpp"

namespace bitclass::avx512 {

#include "search_scan.hpp"

namespace {

struct Places {
    std::uint8_t of[64];
    constexpr Places() : of{} {
        for (int i = 0; i < 64; ++i) of[i] = static_cast<std::uint8_t>(i);
    }
};

struct Lanes : PlainLanes<Lanes> {
    using Register = __m512i;
    using Count = __m512i;
    static constexpr std::size_t kWidth = 16;
    static constexpr std::size_t kWordsPerCount = 1 << 20;

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
    // Packing works within 128-bit lanes; the permutations put the quarters back in order.
    static void narrow_64(std::uint8_t* at, const Register* distances) {
        const __m512i low = _mm512_packus_epi32(distances[0], distances[1]);
        const __m512i mixed = _mm512_packus_epi16(low, _mm512_packus_epi32(distances[2], distances[3]));
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        _mm512_store_si512(at, _mm512_permutexvar_epi32(order, mixed));
    }
    static void narrow_64(std::uint16_t* at, const Register* distances) {
        const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
        for (int half = 0; half < 2; ++half) {
            const __m512i mixed = _mm512_packus_epi32(distances[2 * half], distances[2 * half + 1]);
            _mm512_store_si512(at + 32 * half, _mm512_permutexvar_epi64(order, mixed));
        }
    }
    static void narrow_64(std::uint32_t* at, const Register* distances) {
        for (int i = 0; i < 4; ++i) _mm512_store_si512(at + 16 * i, distances[i]);
    }
    using PlainLanes<Lanes>::below_of_64;
    static std::uint64_t below_of_64(const std::uint8_t* distances, std::uint8_t limit) {
        return _mm512_cmplt_epu8_mask(_mm512_load_si512(distances), _mm512_set1_epi8(static_cast<char>(limit)));
    }
    static std::uint64_t below_of_64(const std::uint16_t* distances, std::uint16_t limit) {
        const __m512i limits = _mm512_set1_epi16(static_cast<short>(limit));
        const std::uint64_t high = _mm512_cmplt_epu16_mask(_mm512_load_si512(distances + 32), limits);
        return high << 32 | _mm512_cmplt_epu16_mask(_mm512_load_si512(distances), limits);
    }
    using PlainLanes<Lanes>::collect_64;
    static std::size_t collect_64(const std::uint8_t* distances, std::uint64_t mask, std::size_t step,
                                  std::uint8_t* near, std::uint8_t* places, std::uint8_t* steps) {
        alignas(64) static constexpr Places kPlaces;
        const auto n = static_cast<std::size_t>(__builtin_popcountll(mask));
        const __m512i values = _mm512_maskz_compress_epi8(mask, _mm512_load_si512(distances));
        const __m512i place = _mm512_maskz_compress_epi8(mask, _mm512_load_si512(kPlaces.of));
        const __m512i all_steps = _mm512_set1_epi8(static_cast<char>(step));
        if (__builtin_expect(n <= 16, 1)) {  // short stores seldom straddle two cache lines
            _mm_storeu_si128(reinterpret_cast<__m128i*>(near), _mm512_castsi512_si128(values));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(places), _mm512_castsi512_si128(place));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(steps), _mm512_castsi512_si128(all_steps));
        } else {
            _mm512_storeu_si512(near, values);
            _mm512_storeu_si512(places, place);
            _mm512_storeu_si512(steps, all_steps);
        }
        return n;
    }
    static std::uint64_t lowest_bits(std::uint64_t mask, std::size_t n) {
        return _pdep_u64(n < 64 ? (std::uint64_t{1} << n) - 1 : ~std::uint64_t{0}, mask);
    }
    static std::size_t compress(std::uint32_t* at, Register values, std::uint32_t mask) {
        // A register that is stored whole: storing some lanes is slow on some processors.
        _mm512_storeu_si512(at, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), values));
        return static_cast<std::size_t>(__builtin_popcount(mask));
    }
    // Sums of four registers at a time, of the lanes with the same place in a quarter.
    static __m512i sums_in_quarters(const __m512i* values) {
        const __m512i low = _mm512_add_epi32(_mm512_unpacklo_epi32(values[0], values[1]),
                                             _mm512_unpackhi_epi32(values[0], values[1]));
        const __m512i high = _mm512_add_epi32(_mm512_unpacklo_epi32(values[2], values[3]),
                                              _mm512_unpackhi_epi32(values[2], values[3]));
        return _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    }
    static __m512i sum_of_neighbours(__m512i a, __m512i b) {
        return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
    }
    // kLength = 0 stands for any length.
    template <std::size_t kLength>
    static void products_of(const std::uint64_t* const* rows, std::size_t length, const std::int8_t* activations,
                            std::int32_t* products) {
        if constexpr (kLength > 0) length = kLength;
        __m512i quarters[4];
#pragma GCC unroll 4
        for (int four = 0; four < 4; ++four) {
            __m512i sum[4] = {};
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
                for (std::size_t w = 0; w < length; ++w) {
                    const __m512i values = _mm512_loadu_si512(activations + 64 * w);
                    const __m512i negated = _mm512_sub_epi8(_mm512_setzero_si512(), values);
                    const __m512i signs = _mm512_mask_mov_epi8(negated, rows[4 * four + i][w], values);
                    sum[i] = _mm512_dpbusd_epi32(sum[i], _mm512_set1_epi8(1), signs);
                }
            }
            quarters[four] = sums_in_quarters(sum);
        }
        const __m512i low = sum_of_neighbours(quarters[0], quarters[1]);
        const __m512i high = sum_of_neighbours(quarters[2], quarters[3]);
        _mm512_storeu_si512(products, sum_of_neighbours(low, high));
    }
    static void products(const std::uint64_t* const* rows, std::size_t length, const std::int8_t* activations,
                         std::int32_t* products) {
        switch (length) {
            case 1: return products_of<1>(rows, length, activations, products);
            case 2: return products_of<2>(rows, length, activations, products);
            case 4: return products_of<4>(rows, length, activations, products);
            default: return products_of<0>(rows, length, activations, products);
        }
    }
};

}  // namespace

const SearchKernels search_kernels = {Lanes::kWidth, &nearest<Lanes>, &scores<Lanes>, &collect<Lanes>, &rescore<Lanes>};

}  // namespace bitclass::avx512
