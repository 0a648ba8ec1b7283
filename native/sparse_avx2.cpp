#include <immintrin.h>

#include "sparse_loops.hpp"

namespace bitclass {
namespace avx2 {
namespace {

struct Isa {
    using Floats __attribute__((vector_size(32))) = float;

    static Floats widen(const std::int8_t* from) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
    }
};

}  // namespace

extern const SparseKernels sparse;
const SparseKernels sparse = SparseLoops<Isa>::table();

}  // namespace avx2
}  // namespace bitclass
