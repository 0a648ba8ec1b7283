// The SIMD level of the kernels, chosen at run time.
#pragma once

#include <string>
#include <vector>

#include "encode.hpp"
#include "multiply.hpp"
#include "refinement.hpp"
#include "search.hpp"
#include "sparse.hpp"
#include "training.hpp"

namespace bitclass {

// The vectorised loops of one level: see simd/level.cpp.
struct Kernels {
    SearchKernels search;
    EncodeKernels encode;
    SparseKernels sparse;
    TrainingKernels training;
    RefinementKernels refinement;
    BothProductKernels products;
};

// portable, avx2 (with F16C), avx512 (F, BW, DQ, VL, VPOPCNTDQ, BITALG, VNNI, VBMI2 and BMI2 together) or neon.
struct Level {
    const char* name;
    const Kernels& kernels;
};

// The levels that this machine can run, slowest first; "portable" is always included.
const std::vector<Level>& available_levels();

// The level in use: the fastest available one, unless use_level selected another.
const Level& current_level();

// Throws std::invalid_argument for a name that is unknown or that this machine cannot run.
void use_level(const std::string& name);

// The kernels of the level in use.
inline const Kernels& kernels() { return current_level().kernels; }

}  // namespace bitclass
