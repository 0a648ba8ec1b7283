#include <arm_neon.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "encode.hpp"

namespace bitclass::neon {

#include "activation.hpp"
#include "encode_int8.hpp"
#include "encode_pack.hpp"

namespace {

float32x4_t load(const float* x) { return vld1q_f32(x); }
float32x4_t load(const Half* x) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(x))));
}
float32x4_t load(const double* x) {
    return vcombine_f32(vcvt_f32_f64(vld1q_f64(x)), vcvt_f32_f64(vld1q_f64(x + 2)));
}

template <bool kStandardise, class Source>
float32x4_t entries(const Source* x, const float* centre, const float* inverse_scale, int at) {
    if constexpr (!kStandardise) return load(x + at);
    return vmulq_f32(vsubq_f32(load(x + at), vld1q_f32(centre + at)), vld1q_f32(inverse_scale + at));
}

// Column by column: two products of bytes up to 127 fit in 16 bits, and are then added in pairs.
struct Tile {
    using Row = std::int8_t;
    using Weight = std::int8_t;
    static constexpr int kRowOffset = 0;
    static constexpr std::size_t kRows = 1;
    static constexpr std::size_t kMinColumns = 8;
    static constexpr std::size_t kColumns = 8;
    static constexpr std::size_t kStep = 16;

    static std::size_t place(std::size_t feature, std::size_t column, std::size_t, std::size_t n_padded) {
        return column * n_padded + feature;
    }

    template <std::size_t kRows>
    static void multiply(const Row* row, std::size_t n_padded, const Weight* panel, std::size_t columns,
                         const std::int32_t* starts, std::int32_t* sums, Upcoming&) {
        for (std::size_t first = 0; first < columns; first += 4) {
            int32x4_t sum[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
            for (std::size_t j = 0; j < n_padded; j += 16) {
                const int8x16_t features = vld1q_s8(row + j);
                for (std::size_t c = 0; c < 4; ++c) {
                    const int8x16_t weights = vld1q_s8(panel + (first + c) * n_padded + j);
                    const int16x8_t low = vmull_s8(vget_low_s8(features), vget_low_s8(weights));
                    sum[c] = vpadalq_s16(sum[c], vmlal_s8(low, vget_high_s8(features), vget_high_s8(weights)));
                }
            }
            for (std::size_t c = 0; c < 4; ++c) sums[first + c] = starts[first + c] + vaddvq_s32(sum[c]);
        }
    }

    using Largest = int32x4_t;
    static Largest none() { return vdupq_n_s32(0); }
    template <bool kStandardise, class Source>
    static Largest largest(Largest so_far, const Source* x, const float* centre, const float* inverse_scale) {
        for (int part = 0; part < 4; ++part) {
            const int32x4_t entry = vreinterpretq_s32_f32(entries<kStandardise>(x, centre, inverse_scale, 4 * part));
            so_far = vmaxq_s32(so_far, vandq_s32(entry, vdupq_n_s32(kMagnitudeBits)));
        }
        return so_far;
    }
    static std::uint32_t value(Largest largest) { return static_cast<std::uint32_t>(vmaxvq_s32(largest)); }

    template <bool kStandardise, class Source>
    static void quantise(const Source* x, const float* centre, const float* inverse_scale, float factor,
                         Row* quantised) {
        int16x4_t of[4];
        for (int part = 0; part < 4; ++part) {
            const float32x4_t entry = entries<kStandardise>(x, centre, inverse_scale, 4 * part);
            of[part] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(entry, factor)));
        }
        vst1q_s8(quantised, vcombine_s8(vqmovn_s16(vcombine_s16(of[0], of[1])), vqmovn_s16(vcombine_s16(of[2], of[3]))));
    }

    static std::uint8_t sign_bits(const std::int32_t* sums, const double* thresholds, float factor) {
        unsigned bits = 0;
        for (int k = 0; k < 8; ++k) bits |= unsigned{sums[k] + thresholds[k] * double{factor} >= 0} << k;
        return static_cast<std::uint8_t>(bits);
    }
};

struct Signs {
    static std::uint8_t bits_of_8(const float* scores, const float* intercept) {
        const std::uint32_t bit_of_lane[4] = {1, 2, 4, 8};
        const uint32x4_t bits = vld1q_u32(bit_of_lane);
        const uint32x4_t low = vcgezq_f32(vaddq_f32(vld1q_f32(scores), vld1q_f32(intercept)));
        const uint32x4_t high = vcgezq_f32(vaddq_f32(vld1q_f32(scores + 4), vld1q_f32(intercept + 4)));
        return static_cast<std::uint8_t>(vaddvq_u32(vandq_u32(low, bits)) | vaddvq_u32(vandq_u32(high, bits)) << 4);
    }
    static std::uint8_t bits_of_8(const double* scores, const double* intercept) {
        unsigned bits = 0;
        for (int k = 0; k < 8; ++k) bits |= unsigned{scores[k] + intercept[k] >= 0} << k;
        return static_cast<std::uint8_t>(bits);
    }
    static constexpr std::size_t kHalves = 4;
    static void widen(const Half* values, float* wide) { vst1q_f32(wide, load(values)); }
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

}  // namespace bitclass::neon
