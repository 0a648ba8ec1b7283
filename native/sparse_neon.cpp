#include "sparse_loops.hpp"

namespace bitclass {
namespace neon {
namespace {

struct Isa {
    using Floats __attribute__((vector_size(16))) = float;

    static Floats widen(const std::int8_t* from) {
        return Floats{static_cast<float>(from[0]), static_cast<float>(from[1]), static_cast<float>(from[2]),
                      static_cast<float>(from[3])};
    }
};

}  // namespace

extern const SparseKernels sparse;
const SparseKernels sparse = SparseLoops<Isa>::table();

}  // namespace neon
}  // namespace bitclass
