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

std::vector<Level> find_levels() {
    std::vector<Level> levels{{"portable", portable::kernels}};
#if defined(__x86_64__)
    // The builtin also checks that the operating system saves the wide registers (xgetbv).
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (has_avx2) levels.push_back({"avx2", avx2::kernels});
    if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bitalg") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi2") &&
        __builtin_cpu_supports("bmi2")) {
        levels.push_back({"avx512", avx512::kernels});
    }
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
