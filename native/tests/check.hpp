// A minimal test framework without Python. Arrays under test are heap arrays of the exact size, so that
// AddressSanitizer detects every access beyond them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                                      \
        }                                                                                      \
    } while (false)

namespace bitclass::tests {

class Random {
public:
    explicit Random(unsigned seed) : engine_(seed) {}
    // Uniform in [low, high]. (The distributions of the standard library differ between platforms.)
    int integer(int low, int high) { return low + static_cast<int>(engine_() % static_cast<unsigned>(high - low + 1)); }
    float real() { return static_cast<float>(integer(-100000, 100000)) / 33333.0f; }

    std::vector<std::uint8_t> bytes(std::size_t n, int most = 255) {
        std::vector<std::uint8_t> values(n);
        for (auto& value : values) value = static_cast<std::uint8_t>(integer(0, most));
        return values;
    }

private:
    std::mt19937 engine_;
};

void test_pool();
void test_ngrams();
// These test the level in use.
void test_search();
void test_encode();
void test_sparse();
void test_class_sums();
void test_products();

}  // namespace bitclass::tests
