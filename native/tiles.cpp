#include "tiles.hpp"

#include "dispatch.hpp"

namespace bitclass {

// clang-format off
namespace portable { extern const TileKernels tiles; }
namespace avx2 { extern const TileKernels tiles; }
namespace avx512 { extern const TileKernels tiles; }
namespace neon { extern const TileKernels tiles; }
// clang-format on

const TileKernels& tile_kernels() {
    static constexpr Levels<TileKernels> levels = BITCLASS_LEVELS(tiles);
    return levels.current();
}

}  // namespace bitclass
