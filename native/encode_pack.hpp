// Packing of float scores, written once for all SIMD levels.
//
// A level's file defines `Signs` and includes this file inside its namespace; everything here has
// internal linkage (see search_scan.hpp). `Signs` offers
//   bits_of_8           which of 8 scores, float or double, reach 0 with their intercepts
//   widen               kHalves half floats to floats

namespace {

// Whether all scores, intercepts added, are finite numbers.
template <class Float>
bool all_finite(const Float* scores, std::size_t n, const Float* intercept) {
    using Bits = std::conditional_t<sizeof(Float) == 4, std::int32_t, std::int64_t>;
    constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();  // all but the sign
    const Float infinity = std::numeric_limits<Float>::infinity();
    Bits limit, largest = 0;
    std::memcpy(&limit, &infinity, sizeof(limit));
    for (std::size_t k = 0; k < n; ++k) {
        const Float score = scores[k] + intercept[k];
        Bits bits;
        std::memcpy(&bits, &score, sizeof(bits));
        bits &= kMagnitude;
        largest = bits > largest ? bits : largest;
    }
    return largest < limit;
}

template <class Signs, class Float>
std::size_t pack(const Float* scores, std::size_t n, std::size_t n_bits, const Float* intercept, std::uint8_t* codes) {
    const std::size_t whole = n_bits / 8;
    std::size_t first_bad = n;
    for (std::size_t i = 0; i < n; ++i, scores += n_bits) {
        if (first_bad == n && !all_finite(scores, n_bits, intercept)) first_bad = i;
        for (std::size_t byte = 0; byte < whole; ++byte) {
            *codes++ = Signs::bits_of_8(scores + 8 * byte, intercept + 8 * byte);
        }
        if (n_bits % 8 == 0) continue;
        unsigned bits = 0;
        for (std::size_t k = 8 * whole; k < n_bits; ++k) bits |= unsigned{scores[k] + intercept[k] >= 0} << k % 8;
        *codes++ = static_cast<std::uint8_t>(bits);
    }
    return first_bad;
}

template <class Signs>
void widen(const Half* values, std::size_t n, float* wide) {
    const std::size_t whole = n / Signs::kHalves * Signs::kHalves;
    for (std::size_t j = 0; j < whole; j += Signs::kHalves) Signs::widen(values + j, wide + j);
    if (whole == n) return;
    Half last[Signs::kHalves] = {};
    float wide_last[Signs::kHalves];
    for (std::size_t j = whole; j < n; ++j) last[j - whole] = values[j];
    Signs::widen(last, wide_last);
    for (std::size_t j = whole; j < n; ++j) wide[j] = wide_last[j - whole];
}

}  // namespace
