// Rows put in the order of their labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bitclass {

// Row numbers ordered by label, rows of one label in row order; empty where the rows are so already.
std::vector<std::size_t> order_by_label(const std::intptr_t* labels, std::size_t n);

}  // namespace bitclass
