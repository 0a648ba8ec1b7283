// The real-valued code of a row: tanh(scale * (P'x + t)) per bit, as integers from -127 to 127.
//
// Written once for all SIMD levels and included inside a level's namespace (see search_scan.hpp).
// Every operation is one that IEEE 754 defines, in a given order, so all levels agree to the last bit;
// reference.activations says the same in NumPy.

namespace {

constexpr std::size_t kActivationsPerStep = 64;

inline float clamped(float x) {
    x = x < 4.0f ? x : 4.0f;
    return x > -4.0f ? x : -4.0f;
}

// 127 times a rational approximation of tanh, within 0.3, for x from -4 to 4; at 4 it has just passed 127.
inline std::int8_t activation(float x) {
    const float square = x * x;
    const float numerator = x * ((127.0f * square + 13335.0f) * square + 120015.0f);
    const float denominator = (15.0f * square + 420.0f) * square + 945.0f;
    // Floats of this size are integers: adding it rounds to the nearest, ties to even, and leaves the
    // integer in the low bits.
    const float rounded = numerator / denominator + 0x1.8p23f;
    std::int32_t bits;
    std::memcpy(&bits, &rounded, sizeof(bits));
    return static_cast<std::int8_t>(bits);
}

// From the integer sums of a row whose entries were multiplied by a factor. Not inlined: its constants would
// take the registers of the product that comes before.
__attribute__((noinline)) void activate_sums(const std::int32_t* __restrict__ sums, std::size_t n, const float* __restrict__ steps,
                          const float* __restrict__ intercept, float inverse_factor,
                          std::int8_t* __restrict__ activations) {
    // Clamped in a loop of its own: compilers that know the value at a limit make branches of it.
    float values[kActivationsPerStep];
    for (std::size_t start = 0; start < n; start += kActivationsPerStep) {
        const std::size_t count = n - start < kActivationsPerStep ? n - start : kActivationsPerStep;
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t at = start + k;
            values[k] = clamped(static_cast<float>(sums[at]) * (steps[at] * inverse_factor) + intercept[at]);
        }
        for (std::size_t k = 0; k < count; ++k) activations[start + k] = activation(values[k]);
    }
}

// From the scores of n rows, whose activations are `stride` bytes apart.
template <class Float>
void activate(const Float* __restrict__ scores, std::size_t n, std::size_t n_bits, const Float* __restrict__ intercept,
              const float* __restrict__ scale, std::int8_t* __restrict__ activations, std::size_t stride) {
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < n_bits; ++k) {
            const auto value = static_cast<float>(scores[i * n_bits + k] + intercept[k]);
            activations[i * stride + k] = activation(clamped(value * scale[k]));
        }
        for (std::size_t k = n_bits; k < stride; ++k) activations[i * stride + k] = 0;
    }
}

}  // namespace
