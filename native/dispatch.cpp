#include "dispatch.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <initializer_list>
#include <stdexcept>

namespace bitclass {

// clang-format off
namespace portable { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
namespace avx512 { extern const Kernels kernels; }
namespace neon { extern const Kernels kernels; }
// clang-format on

namespace {

#if defined(__x86_64__)
// Whether the processor has the instructions of a level, and the operating system saves its registers. (The compilers'
// own check, __builtin_cpu_supports, needs a runtime library that is not linked on Windows.)
struct Processor {
    bool avx2 = false, avx512 = false;

    Processor() {
        unsigned a = 0, b = 0, c = 0, d = 0, features = 0;
        if (!__get_cpuid(1, &a, &b, &features, &d) || !has(features, {27})) return;  // xgetbv
        unsigned saved = 0;
        __asm__("xgetbv" : "=a"(saved) : "c"(0) : "edx");
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
        // f16c and fma, avx2
        avx2 = has(saved, {1, 2}) && has(features, {12, 29}) && has(b, {5});
        // bmi2, avx512f, dq, bw, vl; vbmi2, vnni, bitalg, vpopcntdq
        avx512 = avx2 && has(saved, {5, 6, 7}) && has(b, {8, 16, 17, 30, 31}) && has(c, {6, 11, 12, 14});
    }

    static bool has(unsigned word, std::initializer_list<int> bits) {
        for (const int bit : bits) {
            if ((word >> bit & 1u) == 0) return false;
        }
        return true;
    }
};
#endif

std::vector<Level> find_levels() {
    std::vector<Level> levels{{"portable", portable::kernels}};
#if defined(__x86_64__)
    const Processor processor;
    if (processor.avx2) levels.push_back({"avx2", avx2::kernels});
    if (processor.avx512) levels.push_back({"avx512", avx512::kernels});
#elif defined(__aarch64__)
    levels.push_back({"neon", neon::kernels});  // part of every 64-bit ARM processor
#endif
    return levels;
}

std::atomic<const Level*>& level_in_use() {
    static std::atomic<const Level*> level{&available_levels().back()};
    return level;
}

}  // namespace

const std::vector<Level>& available_levels() {
    // Never freed: a daemon thread may still predict while the process exits.
    static const auto* levels = new std::vector<Level>(find_levels());
    return *levels;
}

const Level& current_level() { return *level_in_use().load(std::memory_order_relaxed); }

void use_level(const std::string& name) {
    std::string names;
    for (const Level& level : available_levels()) {
        if (name == level.name) {
            level_in_use().store(&level);
            return;
        }
        names += names.empty() ? "" : ", ";
        names += level.name;
    }
    throw std::invalid_argument("SIMD level '" + name +
                                "' is unknown or not supported by this machine, which has: " + names);
}

}  // namespace bitclass
