// All vectorised loops, compiled once per SIMD level: with the compiler flags of the level, its name as BITCLASS_LEVEL,
// and the header with its instructions as BITCLASS_ISA.
//
// Everything has internal linkage: the linker must not merge functions compiled for different instruction sets. For the
// same reason nothing here calls inline functions of the standard library.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "../dispatch.hpp"

namespace bitclass::BITCLASS_LEVEL {
namespace {

#include BITCLASS_ISA

#include "encode_loops.hpp"
#include "product_loops.hpp"
#include "refinement_loops.hpp"
#include "search_loops.hpp"
#include "sparse_loops.hpp"
#include "training_loops.hpp"

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {kSearchKernels,   kEncodeKernels,     kSparseKernels,
                         kTrainingKernels, kRefinementKernels, kProductKernels};

}  // namespace bitclass::BITCLASS_LEVEL
