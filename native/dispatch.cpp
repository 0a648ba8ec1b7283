#include "dispatch.hpp"

#include <atomic>
#include <stdexcept>

namespace bitclass {

// clang-format off
namespace portable { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
namespace avx512 { extern const Kernels kernels; }
namespace neon { extern const Kernels kernels; }
// clang-format on

namespace {

std::atomic<Level>& level_in_use() {
    static std::atomic<Level> level{available_levels().back()};
    return level;
}

}  // namespace

const char* name_of(Level level) {
    switch (level) {
        case Level::portable: return "portable";
        case Level::avx2: return "avx2";
        case Level::avx512: return "avx512";
        case Level::neon: return "neon";
    }
    return "unknown";
}

std::vector<Level> available_levels() {
    std::vector<Level> levels{Level::portable};
#if defined(__x86_64__)
    // The builtin also asks whether the operating system saves the wide registers (xgetbv).
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (has_avx2) levels.push_back(Level::avx2);
    if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bitalg") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi2") &&
        __builtin_cpu_supports("bmi2")) {
        levels.push_back(Level::avx512);
    }
#elif defined(__aarch64__)
    levels.push_back(Level::neon);  // part of every 64-bit ARM processor
#endif
    return levels;
}

Level current_level() { return level_in_use().load(std::memory_order_relaxed); }

const Kernels& kernels() {
    switch (current_level()) {
#if defined(__x86_64__)
        case Level::avx512: return avx512::kernels;
        case Level::avx2: return avx2::kernels;
#elif defined(__aarch64__)
        case Level::neon: return neon::kernels;
#endif
        default: return portable::kernels;
    }
}

void use_level(const std::string& name) {
    std::string names;
    for (const Level level : available_levels()) {
        if (name == name_of(level)) {
            level_in_use().store(level);
            return;
        }
        names += names.empty() ? "" : ", ";
        names += name_of(level);
    }
    throw std::invalid_argument("SIMD level '" + name +
                                "' is unknown or not supported by this machine, which has: " + names);
}

}  // namespace bitclass
