// Which instruction set serves the kernels, chosen at run time.
#pragma once

#include <string>
#include <vector>

#if defined(__x86_64__) || defined(_M_X64)
#define BITCLASS_X86 1
#elif defined(__aarch64__)
#define BITCLASS_ARM 1
#endif

namespace bitclass {

// avx2 also asks for F16C; avx512 for F, BW, DQ, VL, VPOPCNTDQ, BITALG and VNNI together.
enum class Level { portable, avx2, avx512, neon };

const char* name_of(Level level);

// The levels this machine can run, slowest first; portable is always among them.
std::vector<Level> available_levels();

// The level in use: the last of the available ones, until use_level chooses another.
Level current_level();

// Throws std::invalid_argument for a name that is unknown or that this machine cannot run.
void use_level(const std::string& name);

// One set of kernels, a struct of function pointers, as each level implements it. A null stands for
// "not built here": on another processor, or because the level below is as fast.
template <class Kernels>
struct Levels {
    const Kernels* portable;
    const Kernels* avx2;
    const Kernels* avx512;
    const Kernels* neon;

    const Kernels& current() const {
        switch (current_level()) {
            case Level::avx512:
                if (avx512 != nullptr) return *avx512;
                [[fallthrough]];
            case Level::avx2:
                if (avx2 != nullptr) return *avx2;
                break;
            case Level::neon:
                if (neon != nullptr) return *neon;
                break;
            case Level::portable:
                break;
        }
        return *portable;
    }
};

// Lists the tables `table` of the namespaces portable, avx2, avx512 and neon that exist in this build.
#if defined(BITCLASS_X86)
#define BITCLASS_LEVELS(table) {&portable::table, &avx2::table, &avx512::table, nullptr}
#elif defined(BITCLASS_ARM)
#define BITCLASS_LEVELS(table) {&portable::table, nullptr, nullptr, &neon::table}
#else
#define BITCLASS_LEVELS(table) {&portable::table, nullptr, nullptr, nullptr}
#endif

}  // namespace bitclass
