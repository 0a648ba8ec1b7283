// Half-precision floats, for which C++17 has no type.
#pragma once

#include <cstdint>

namespace bitclass {

struct Half {
    std::uint16_t bits;
};

}  // namespace bitclass
