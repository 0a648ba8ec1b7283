// The SIMD level of the kernels, chosen at run time.
#pragma once

#include <string>
#include <vector>

#include "encode.hpp"
#include "search.hpp"
#include "sparse.hpp"
#include "tiles.hpp"

namespace bitclass {

// avx2 also asks for F16C; avx512 for F, BW, DQ, VL, VPOPCNTDQ, BITALG, VNNI, VBMI2 and BMI2 together.
enum class Level { portable, avx2, avx512, neon };

const char* name_of(Level level);

// The levels this machine can run, slowest first; portable is always among them.
std::vector<Level> available_levels();

// The level in use: the last of the available ones, until use_level chooses another.
Level current_level();

// Throws std::invalid_argument for a name that is unknown or that this machine cannot run.
void use_level(const std::string& name);

// The vectorised loops of one level, see simd/level.cpp.
struct Kernels {
    SearchKernels search;
    EncodeKernels encode;
    SparseKernels sparse;
    TrainingKernels training;
};

// Those of the level in use.
const Kernels& kernels();

}  // namespace bitclass
