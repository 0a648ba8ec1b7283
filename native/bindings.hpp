// The parts of the compiled module, each bound in a file of its own.
#pragma once

#include <nanobind/nanobind.h>

namespace bitclass {

void bind_config(nanobind::module_& m);    // bindings.cpp
void bind_search(nanobind::module_& m);    // bindings_search.cpp
void bind_encode(nanobind::module_& m);    // bindings_encode.cpp
void bind_training(nanobind::module_& m);  // bindings_training.cpp

}  // namespace bitclass
