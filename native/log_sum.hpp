// Sums of positive numbers far outside the range of a double, without a logarithm a term.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace bitclass {

// A factor exp(x) as fraction * 2^exponent, the fraction in [1, 2).
struct WideFactor {
    explicit WideFactor(double x) {
        exponent = static_cast<std::int64_t>(std::floor(x / kLog2));
        fraction = std::exp(x - static_cast<double>(exponent) * kLog2);
    }

    static constexpr double kLog2 = 0.693147180559945309417232;
    double fraction;
    std::int64_t exponent;
};

// The sum is sum_ * 2^exponent_, where the exponent is that of the largest term so far.
class LogSum {
public:
    // Adds term * factor; term > 0.
    void add(double term, const WideFactor& factor) {
        std::int64_t exponent = factor.exponent;
        if (term < 0x1p-1022) {
            term *= 0x1p64;
            exponent -= 64;
        }
        std::uint64_t bits;
        std::memcpy(&bits, &term, sizeof bits);
        exponent += static_cast<std::int64_t>(bits >> 52) - 1023;
        bits = (bits & 0x000fffffffffffff) | std::uint64_t{1023} << 52;
        std::memcpy(&term, &bits, sizeof bits);
        add_scaled(term * factor.fraction, exponent);
    }

    void add(const LogSum& other) {
        if (other.sum_ > 0.0) add_scaled(other.sum_, other.exponent_);
    }

    double log() const {
        if (!(sum_ > 0.0)) return -HUGE_VAL;
        return std::log(sum_) + static_cast<double>(exponent_) * WideFactor::kLog2;
    }

private:
    // 2^exponent for exponent <= 0; what is too small to count is 0.
    static double power(std::int64_t exponent) {
        if (exponent < -1000) return 0.0;
        const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
        double value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }

    void add_scaled(double value, std::int64_t exponent) {
        if (exponent > exponent_) {
            sum_ = sum_ > 0.0 ? sum_ * power(exponent_ - exponent) : 0.0;
            exponent_ = exponent;
        }
        sum_ += value * power(exponent - exponent_);
    }

    double sum_ = 0.0;
    std::int64_t exponent_ = INT64_MIN / 4;
};

}  // namespace bitclass
