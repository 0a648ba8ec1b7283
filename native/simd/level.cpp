// Every loop that gains from vector instructions, built once per SIMD level: with the level's flags, its name as
// BITCLASS_LEVEL, and as BITCLASS_ISA the header that says how its instructions do things.
//
// All of it has internal linkage: a function built for two instruction sets must not be merged into one by the
// linker. For the same reason nothing here calls inline functions of the standard library.
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
#include "search_loops.hpp"
#include "sparse_loops.hpp"
#include "training_loops.hpp"

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {kSearchKernels, kEncodeKernels, kSparseKernels, kTrainingKernels};

}  // namespace bitclass::BITCLASS_LEVEL
