#include <cstring>
#include <limits>

#include "search.hpp"

namespace bitclass::portable {

#include "search_scan.hpp"

namespace {

// Four lanes as a vector of the compiler's own, which it turns into what the processor has.
struct Lanes : PlainLanes<Lanes> {
    using Register = std::uint32_t __attribute__((vector_size(16)));
    using Count = Register;  // of bytes
    static constexpr std::size_t kWidth = 4;
    static constexpr std::size_t kWordsPerCount = 31;  // 8 bits a byte and word, and a byte holds 255

    static Register load(const std::uint32_t* at) { return *reinterpret_cast<const Register*>(at); }
    static Register broadcast(std::uint32_t value) { return Register{value, value, value, value}; }
    static Register differing(Register a, Register b) { return a ^ b; }
    static Register add(Register a, Register b) { return a + b; }
    static Count none() { return broadcast(0); }
    static Count add_bits(Count count, Register x) {
        x -= (x >> 1) & broadcast(0x55555555u);
        x = (x & broadcast(0x33333333u)) + ((x >> 2) & broadcast(0x33333333u));
        return count + ((x + (x >> 4)) & broadcast(0x0f0f0f0fu));
    }
    static Register total(Count count) {
        const Register pairs = (count & broadcast(0x00ff00ffu)) + ((count >> 8) & broadcast(0x00ff00ffu));
        return (pairs & broadcast(0xffffu)) + (pairs >> 16);
    }

    template <int kWords>
    static Register key(Register distances, Register step) {
        return (distances << kStepBits) | step;
    }

    static Register smaller(Register a, Register b) { return a < b ? a : b; }
    static std::uint32_t lowest(Register keys, std::size_t* lane) {
        *lane = 0;
        for (std::size_t i = 1; i < kWidth; ++i) {
            if (keys[i] < keys[*lane]) *lane = i;
        }
        return keys[*lane];
    }
    static std::uint32_t below(Register a, Register b) {
        std::uint32_t mask = 0;
        for (std::size_t i = 0; i < kWidth; ++i) mask |= std::uint32_t{a[i] < b[i]} << i;
        return mask;
    }
    static Register product(Register distances, std::int32_t n_bits) {
        return broadcast(static_cast<std::uint32_t>(n_bits)) - (distances << 1);
    }
    static void store(std::uint32_t* at, Register values) {
        for (std::size_t i = 0; i < kWidth; ++i) at[i] = values[i];
    }
    static std::int32_t product_of(const std::uint64_t* row, std::size_t length, const std::int8_t* activations) {
        std::int32_t sum = 0;
        for (std::size_t w = 0; w < length; ++w) {
            for (std::size_t k = 0; k < 64; ++k) {
                sum += activations[64 * w + k] * (2 * static_cast<std::int32_t>(row[w] >> k & 1) - 1);
            }
        }
        return sum;
    }
};

}  // namespace

const SearchKernels search_kernels = {Lanes::kWidth, &nearest<Lanes>, &scores<Lanes>, &collect<Lanes>, &rescore<Lanes>};

}  // namespace bitclass::portable
