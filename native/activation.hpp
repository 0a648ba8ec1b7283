// The real-valued code of a row: tanh(scale * (P'x + t)) per bit, as integers from -127 to 127.
//
// Written once for all SIMD levels and included inside a level's namespace (see search_scan.hpp).
// Every operation is one that IEEE 754 defines, in a given order, so all levels agree to the last bit;
// reference.activations says the same in NumPy.

namespace {

inline std::int8_t activation(float x) {
    // A rational approximation of tanh, within 0.003; at 4 it has reached 1.
    x = x < 4.0f ? x : 4.0f;
    x = x > -4.0f ? x : -4.0f;
    const float square = x * x;
    const float numerator = x * ((square + 105.0f) * square + 945.0f);
    const float denominator = (15.0f * square + 420.0f) * square + 945.0f;
    float scaled = 127.0f * (numerator / denominator);
    scaled = scaled < 127.0f ? scaled : 127.0f;
    scaled = scaled > -127.0f ? scaled : -127.0f;
    return static_cast<std::int8_t>(static_cast<std::int32_t>(scaled < 0.0f ? scaled - 0.5f : scaled + 0.5f));
}

// From the integer sums of a row whose entries were multiplied by a factor.
inline void activate_sums(const std::int32_t* sums, std::size_t n, const float* steps, const float* intercept,
                          float inverse_factor, std::int8_t* activations) {
    for (std::size_t k = 0; k < n; ++k) {
        activations[k] = activation(static_cast<float>(sums[k]) * (steps[k] * inverse_factor) + intercept[k]);
    }
}

// From the scores of n rows, whose activations are `stride` bytes apart.
template <class Float>
void activate(const Float* scores, std::size_t n, std::size_t n_bits, const Float* intercept, const float* scale,
              std::int8_t* activations, std::size_t stride) {
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < n_bits; ++k) {
            const auto value = static_cast<float>(scores[i * n_bits + k] + intercept[k]);
            activations[i * stride + k] = activation(value * scale[k]);
        }
        for (std::size_t k = n_bits; k < stride; ++k) activations[i * stride + k] = 0;
    }
}

}  // namespace
