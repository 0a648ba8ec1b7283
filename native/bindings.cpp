// The one file of the native code that knows Python.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_kernels, m) {
    m.doc() = "Compiled kernels of bitclass.";
    m.def("compiler", [] { return __VERSION__; }, "Version of the compiler this module was built with.");
}
