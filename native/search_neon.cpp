#include <arm_neon.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "search.hpp"

namespace bitclass::neon {

#include "search_scan.hpp"

namespace {

struct Isa : IsaDefaults<Isa> {
    static constexpr std::size_t kVectorBytes = 16;
    using Bytes = Vector<Isa, std::uint8_t>;

    static Bytes count(Bytes bytes) { return (Bytes)vcntq_u8((uint8x16_t)bytes); }

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

}  // namespace

const SearchKernels search_kernels = search_kernels_of<Isa>();

}  // namespace bitclass::neon
