#include <arm_neon.h>

#include <cstring>
#include <limits>

#include "search.hpp"

namespace bitclass::neon {

#include "search_scan.hpp"

namespace {

struct Lanes : PlainLanes<Lanes> {
    using Register = uint32x4_t;
    using Count = uint8x16_t;
    static constexpr std::size_t kWidth = 4;
    static constexpr std::size_t kWordsPerCount = 31;  // 8 bits a byte and word, and a byte holds 255

    static Register load(const std::uint32_t* at) { return vld1q_u32(at); }
    static Register broadcast(std::uint32_t value) { return vdupq_n_u32(value); }
    static Register differing(Register a, Register b) { return veorq_u32(a, b); }
    static Register add(Register a, Register b) { return vaddq_u32(a, b); }
    static Count none() { return vdupq_n_u8(0); }
    static Count add_bits(Count count, Register bits) {
        return vaddq_u8(count, vcntq_u8(vreinterpretq_u8_u32(bits)));
    }
    static Register total(Count count) { return vpaddlq_u16(vpaddlq_u8(count)); }

    template <int kWords>
    static Register key(Register distances, Register step) {
        return vorrq_u32(vshlq_n_u32(distances, kStepBits), step);
    }

    static Register smaller(Register a, Register b) { return vminq_u32(a, b); }
    static std::uint32_t lowest(Register keys, std::size_t* lane) {
        const std::uint32_t key = vminvq_u32(keys);
        std::uint32_t of_lane[kWidth];
        store(of_lane, keys);
        for (*lane = 0; of_lane[*lane] != key;) ++*lane;
        return key;
    }
    static std::uint32_t below(Register a, Register b) {
        const std::uint32_t bit_of_lane[kWidth] = {1, 2, 4, 8};
        return vaddvq_u32(vandq_u32(vcltq_u32(a, b), vld1q_u32(bit_of_lane)));
    }
    static Register product(Register distances, std::int32_t n_bits) {
        return vsubq_u32(vdupq_n_u32(static_cast<std::uint32_t>(n_bits)), vshlq_n_u32(distances, 1));
    }
    static void store(std::uint32_t* at, Register values) { vst1q_u32(at, values); }
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

const SearchKernels search_kernels = {Lanes::kWidth, &nearest<Lanes>, &scores<Lanes>, &collect<Lanes>, &rescore<Lanes>};

}  // namespace bitclass::neon
