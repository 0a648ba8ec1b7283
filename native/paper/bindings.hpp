// Python bindings of the paper's kernels.
#pragma once

#include <nanobind/nanobind.h>

namespace bitclass {

void bind_paper(nanobind::module_& m);

}  // namespace bitclass
