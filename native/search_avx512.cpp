#include <immintrin.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "search.hpp"

namespace bitclass::avx512 {

#include "search_scan.hpp"

namespace {

struct LaneNumbers {
    std::uint8_t of[64];
    constexpr LaneNumbers() : of{} {
        for (int i = 0; i < 64; ++i) of[i] = static_cast<std::uint8_t>(i);
    }
};

struct Isa : IsaDefaults<Isa> {
    static constexpr std::size_t kVectorBytes = 64;
    static constexpr int kGroupsTogether = 2;
    using Bytes = Vector<Isa, std::uint8_t>;

    static Bytes count(Bytes bytes) { return (Bytes)_mm512_popcnt_epi8((__m512i)bytes); }

    using IsaDefaults<Isa>::below;
    static std::uint64_t below(const Bytes* distances, std::uint8_t limit) {
        return _mm512_cmplt_epu8_mask((__m512i)*distances, _mm512_set1_epi8(static_cast<char>(limit)));
    }
    static std::uint64_t below(const Vector<Isa, std::uint16_t>* distances, std::uint16_t limit) {
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

    // Adds the activations of 64 bits, those of a bit that is not set with the other sign.
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

}  // namespace

const SearchKernels search_kernels = search_kernels_of<Isa>();

}  // namespace bitclass::avx512
