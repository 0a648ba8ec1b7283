// 64-bit ARM.

constexpr std::size_t kVectorBytes = 16;
#include "vectors.hpp"

inline Floats fused(Floats a, Floats b, Floats c) { return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
inline Doubles fused(Doubles a, Doubles b, Doubles c) {
    return (Doubles)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
constexpr std::size_t kProductRows = 12;

struct Isa : IsaDefaults<Isa> {
    static Bytes count(Bytes bytes) { return (Bytes)vcntq_u8((uint8x16_t)bytes); }
    static Bytes add_saturated(Bytes a, Bytes b) { return (Bytes)vqaddq_u8((uint8x16_t)a, (uint8x16_t)b); }

    using IsaDefaults<Isa>::below;
    static std::uint64_t below(const Bytes* distances, std::uint8_t limit) {
        const uint8x16_t bit_of_lane = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
        uint8x16_t bits[4];
        for (int i = 0; i < 4; ++i) {
            bits[i] = vandq_u8(vcltq_u8((uint8x16_t)distances[i], vdupq_n_u8(limit)), bit_of_lane);
        }
        const uint8x16_t pairs = vpaddq_u8(vpaddq_u8(bits[0], bits[1]), vpaddq_u8(bits[2], bits[3]));
        return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(pairs, pairs)), 0);
    }

    static std::int32_t product_of(const std::uint64_t* row, std::size_t length, const std::int8_t* activations) {
        const uint8x16_t bit_of_lane = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
        int32x4_t sum = vdupq_n_s32(0);
        for (std::size_t w = 0; w < 2 * length; ++w) {
            const auto word = static_cast<std::uint32_t>(row[w / 2] >> 32 * (w % 2));
            for (int half = 0; half < 2; ++half) {
                const uint8x8_t low = vdup_n_u8(static_cast<std::uint8_t>(word >> 16 * half));
                const uint8x8_t high = vdup_n_u8(static_cast<std::uint8_t>(word >> (16 * half + 8)));
                const uint8x16_t set = vtstq_u8(vcombine_u8(low, high), bit_of_lane);
                const int8x16_t values = vld1q_s8(activations + 32 * w + 16 * half);
                sum = vpadalq_s16(sum, vpaddlq_s8(vbslq_s8(set, values, vnegq_s8(values))));
            }
        }
        return vaddvq_s32(sum);
    }
};

Floats floats_of(const Half* x) {
    return (Floats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(x))));
}
std::uint8_t bits_of_8(const float* scores, const float* intercept) {
    const std::uint32_t bit_of_lane[4] = {1, 2, 4, 8};
    const uint32x4_t bits = vld1q_u32(bit_of_lane);
    const uint32x4_t low = vcgezq_f32(vaddq_f32(vld1q_f32(scores), vld1q_f32(intercept)));
    const uint32x4_t high = vcgezq_f32(vaddq_f32(vld1q_f32(scores + 4), vld1q_f32(intercept + 4)));
    return static_cast<std::uint8_t>(vaddvq_u32(vandq_u32(low, bits)) | vaddvq_u32(vandq_u32(high, bits)) << 4);
}

// Two products of bytes up to 127 fit in 16 bits, and are then added in pairs.
struct Tile : ColumnTile<std::int8_t> {
    static void multiply(const Row* row, std::size_t n_padded, const Weight* panel, std::size_t columns,
                         const std::int32_t* starts, std::int32_t* sums) {
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

    static void quantise(const Floats* scaled, Row* quantised) {
        int16x4_t of[4];
        for (int part = 0; part < 4; ++part) of[part] = vqmovn_s32(vcvtnq_s32_f32((float32x4_t)scaled[part]));
        vst1q_s8(quantised,
                 vcombine_s8(vqmovn_s16(vcombine_s16(of[0], of[1])), vqmovn_s16(vcombine_s16(of[2], of[3]))));
    }
};
