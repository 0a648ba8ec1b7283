#include <cstring>
#include <limits>
#include <type_traits>

#include "search.hpp"

namespace bitclass::portable {

#include "search_scan.hpp"

namespace {

struct Isa : IsaDefaults<Isa> {
    static constexpr std::size_t kVectorBytes = 16;
    using Bytes = Vector<Isa, std::uint8_t>;

    static Bytes count(Bytes bytes) {
        using Words = Vector<Isa, std::uint32_t>;  // shifts of bytes are slow
        Words x = (Words)bytes;
        x -= (x >> 1) & 0x55555555u;
        x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
        return (Bytes)((x + (x >> 4)) & 0x0f0f0f0fu);
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

const SearchKernels search_kernels = search_kernels_of<Isa>();

}  // namespace bitclass::portable
