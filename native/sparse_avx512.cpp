#include <immintrin.h>

#include "sparse_loops.hpp"

namespace bitclass {
namespace avx512 {
namespace {

struct Isa {
    using Floats __attribute__((vector_size(64))) = float;

    static Floats widen(const std::int8_t* from) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
    }
};

}  // namespace

extern const SparseKernels sparse;
const SparseKernels sparse = SparseLoops<Isa>::table();

}  // namespace avx512
}  // namespace bitclass
