#include <immintrin.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "encode.hpp"

namespace bitclass::avx512 {

#include "activation.hpp"
#include "encode_int8.hpp"
#include "encode_pack.hpp"

namespace {

__m512 load(const float* x) { return _mm512_loadu_ps(x); }
__m512 load(const Half* x) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))); }
__m512 load(const double* x) {
    const __m256 low = _mm512_cvtpd_ps(_mm512_loadu_pd(x));
    const __m256 high = _mm512_cvtpd_ps(_mm512_loadu_pd(x + 8));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

template <bool kStandardise, class Source>
__m512 entries(const Source* x, const float* centre, const float* inverse_scale, int at) {
    if constexpr (!kStandardise) return load(x + at);
    return _mm512_mul_ps(_mm512_sub_ps(load(x + at), _mm512_load_ps(centre + at)), _mm512_load_ps(inverse_scale + at));
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

    static std::size_t place(std::size_t feature, std::size_t column, std::size_t n_columns, std::size_t) {
        return (feature / 4 * n_columns + column) * 4 + feature % 4;
    }

    template <std::size_t kRows, std::size_t kRegisters>
    static void multiply_registers(const Row* rows, std::size_t n_padded, const Weight* panel,
                                   const std::int32_t* starts, std::int32_t* sums, Upcoming& upcoming) {
        __m512i sum[kRows][kRegisters];
        for (std::size_t i = 0; i < kRows; ++i) {
            for (std::size_t c = 0; c < kRegisters; ++c) sum[i][c] = _mm512_load_si512(starts + 16 * c);
        }
        Upcoming fetch = upcoming;  // a copy, which can stay in registers
        for (std::size_t j = 0; j < n_padded; j += 4) {
            __m512i weights[kRegisters];
#pragma GCC unroll 4
            for (std::size_t c = 0; c < kRegisters; ++c) weights[c] = _mm512_load_si512(panel + 64 * c);
#pragma GCC unroll 6
            for (std::size_t i = 0; i < kRows; ++i) {
                std::int32_t four;
                std::memcpy(&four, rows + i * n_padded + j, sizeof(four));
                const __m512i features = _mm512_set1_epi32(four);
#pragma GCC unroll 4
                for (std::size_t c = 0; c < kRegisters; ++c) {
                    sum[i][c] = _mm512_dpbusd_epi32(sum[i][c], features, weights[c]);
                }
            }
            panel += 64 * kRegisters;
            fetch.fetch_line();
        }
        upcoming = fetch;
        for (std::size_t i = 0; i < kRows; ++i) {
            for (std::size_t c = 0; c < kRegisters; ++c) {
                _mm512_store_si512(sums + 16 * (i * kRegisters + c), sum[i][c]);
            }
        }
    }

    template <std::size_t kRows>
    static void multiply(const Row* rows, std::size_t n_padded, const Weight* panel, std::size_t columns,
                         const std::int32_t* starts, std::int32_t* sums, Upcoming& upcoming) {
        switch (columns / kMinColumns) {
            case 1: return multiply_registers<kRows, 1>(rows, n_padded, panel, starts, sums, upcoming);
            case 2: return multiply_registers<kRows, 2>(rows, n_padded, panel, starts, sums, upcoming);
            case 3: return multiply_registers<kRows, 3>(rows, n_padded, panel, starts, sums, upcoming);
            default: return multiply_registers<kRows, 4>(rows, n_padded, panel, starts, sums, upcoming);
        }
    }

    struct Largest {
        __m512i of[4];  // four, not to wait for the one before
    };
    static Largest none() {
        const __m512i zero = _mm512_setzero_si512();
        return {{zero, zero, zero, zero}};
    }
    template <bool kStandardise, class Source>
    static Largest largest(Largest so_far, const Source* x, const float* centre, const float* inverse_scale) {
        const __m512i magnitude = _mm512_set1_epi32(kMagnitudeBits);
        for (int part = 0; part < 4; ++part) {
            const __m512i entry = _mm512_castps_si512(entries<kStandardise>(x, centre, inverse_scale, 16 * part));
            so_far.of[part] = _mm512_max_epi32(so_far.of[part], _mm512_and_si512(entry, magnitude));
        }
        return so_far;
    }
    static std::uint32_t value(const Largest& largest) {
        const __m512i low = _mm512_max_epi32(largest.of[0], largest.of[1]);
        const __m512i high = _mm512_max_epi32(largest.of[2], largest.of[3]);
        return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(_mm512_max_epi32(low, high)));
    }

    template <bool kStandardise, class Source>
    static void quantise(const Source* x, const float* centre, const float* inverse_scale, float factor,
                         Row* quantised) {
        __m512i of[4];
        for (int part = 0; part < 4; ++part) {
            const __m512 entry = entries<kStandardise>(x, centre, inverse_scale, 16 * part);
            of[part] = _mm512_cvtps_epi32(_mm512_mul_ps(entry, _mm512_set1_ps(factor)));
        }
        // Packing works within 128-bit lanes; the permutation puts the quarters back in order.
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

struct Signs {
    static std::uint8_t bits_of_8(const float* scores, const float* intercept) {
        const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(scores), _mm256_loadu_ps(intercept));
        return _mm256_cmp_ps_mask(sum, _mm256_setzero_ps(), _CMP_GE_OQ);
    }
    static std::uint8_t bits_of_8(const double* scores, const double* intercept) {
        const __m512d sum = _mm512_add_pd(_mm512_loadu_pd(scores), _mm512_loadu_pd(intercept));
        return _mm512_cmp_pd_mask(sum, _mm512_setzero_pd(), _CMP_GE_OQ);
    }
    static constexpr std::size_t kHalves = 16;
    static void widen(const Half* values, float* wide) { _mm512_storeu_ps(wide, load(values)); }
};

}  // namespace

const EncodeKernels encode_kernels = {
    &pack<Signs, float>,
    &pack<Signs, double>,
    &activate<float>,
    &activate<double>,
    &widen<Signs>,
    &padded_features<Tile>,
    &padded_columns<Tile>,
    sizeof(Tile::Weight),
    Tile::kRowOffset,
    &lay_out<Tile>,
    &room<Tile>,
    &encode<Tile>,
};

}  // namespace bitclass::avx512
