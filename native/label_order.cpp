#include "label_order.hpp"

#include <algorithm>
#include <numeric>

namespace bitclass {

std::vector<std::size_t> order_by_label(const std::intptr_t* labels, std::size_t n) {
    if (std::is_sorted(labels, labels + n)) return {};
    std::vector<std::size_t> order(n);
    const auto [lowest, highest] = std::minmax_element(labels, labels + n);
    // Unsigned, so that the extremes of the type do not overflow.
    const std::size_t range = static_cast<std::size_t>(*highest) - static_cast<std::size_t>(*lowest);
    if (range <= 4 * n) {
        const std::size_t base = static_cast<std::size_t>(*lowest);
        std::vector<std::size_t> starts(range + 2);
        for (std::size_t i = 0; i < n; ++i) ++starts[static_cast<std::size_t>(labels[i]) - base + 1];
        std::partial_sum(starts.begin(), starts.end(), starts.begin());
        for (std::size_t i = 0; i < n; ++i) order[starts[static_cast<std::size_t>(labels[i]) - base]++] = i;
    } else {
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return labels[a] < labels[b]; });
    }
    return order;
}

}  // namespace bitclass
