// Python's view of the kernels. The bindings check and convert arguments, release the GIL and call;
// the kernels know pointers and sizes only.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "dispatch.hpp"
#include "arrays.hpp"
#include "pool.hpp"

namespace nb = nanobind;

namespace bitclass {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;  // names itself
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

}  // namespace

void bind_config(nb::module_& m) {
    m.def("compiler", [] { return kCompiler; }, "The compiler this module was built with.");
    m.def(
        "available_levels",
        [] {
            std::vector<std::string> names;
            for (const Level level : available_levels()) names.emplace_back(name_of(level));
            return names;
        },
        "Names of the SIMD levels this machine can run, slowest first.");
    m.def("current_level", [] { return name_of(current_level()); }, "Name of the SIMD level in use.");
    m.def("_use_level", &use_level, nb::arg("name"), "Use one SIMD level from now on.");
    m.def(
        "_parallel_for",
        [](std::size_t n_chunks, int n_threads, nb::callable run) {
            const WithoutGil released;
            parallel_for(n_chunks, n_threads, [&](std::size_t chunk) {
                nb::gil_scoped_acquire acquire;
                run(chunk);
            });
        },
        nb::arg("n_chunks"), nb::arg("n_threads"), nb::arg("run"), "Run a Python callable on the pool, for tests.");
}

}  // namespace bitclass

NB_MODULE(_kernels, m) {
    m.doc() = "Compiled kernels of bitclass.";
    // A daemon thread may hold an index when the interpreter ends, which is no concern of the user.
    nb::set_leak_warnings(false);
    bitclass::bind_config(m);
    bitclass::bind_search(m);
    bitclass::bind_encode(m);
    bitclass::bind_sparse(m);
    bitclass::bind_text(m);
    bitclass::bind_training(m);
}
