#include "class_index.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pool.hpp"

namespace bitclass {
namespace {

// Memory of a search, kept per thread.
struct Scratch {
    std::vector<std::int32_t> products;  // of the query and all centres
    std::vector<std::uint32_t> counts;   // of centres at each distance
    std::vector<std::uint32_t> order;    // centres, nearest first
    std::vector<std::uint64_t> best;     // distance << 32 | class
    AlignedArray<std::uint32_t> found;   // candidates of one cluster
};

// Orders the centres by distance, then by number.
void order_by_distance(const std::vector<std::int32_t>& products, std::size_t max_distance, Scratch& scratch) {
    scratch.counts.assign(max_distance + 2, 0);
    for (const std::int32_t product : products) ++scratch.counts[static_cast<std::size_t>(-product / 2) + 1];
    for (std::size_t i = 1; i < scratch.counts.size(); ++i) scratch.counts[i] += scratch.counts[i - 1];
    scratch.order.resize(products.size());
    for (std::size_t i = 0; i < products.size(); ++i) {
        scratch.order[scratch.counts[static_cast<std::size_t>(-products[i] / 2)]++] = static_cast<std::uint32_t>(i);
    }
}

}  // namespace

ClassIndex::ClassIndex(const SearchKernels& kernels, const std::uint8_t* weights, std::size_t n_classes,
                       std::size_t n_bytes, const std::uint8_t* centres, std::size_t n_centres,
                       const std::int64_t* clusters, std::size_t n_probe, const Handicaps& handicaps)
    : kernels_(kernels), n_bytes_(n_bytes), n_centres_(n_centres), n_probe_(n_probe), starts_(n_centres),
      sizes_(n_centres) {
    if (n_centres == 0 || n_probe == 0 || n_probe > n_centres) {
        throw std::invalid_argument("n_probe: expected 1 to " + std::to_string(n_centres) +
                                    ", the number of clusters, found " + std::to_string(n_probe));
    }
    for (std::size_t c = 0; c < n_classes; ++c) {
        if (clusters[c] < 0 || static_cast<std::size_t>(clusters[c]) >= n_centres) {
            throw std::invalid_argument("clusters: expected 0 to " + std::to_string(n_centres - 1) + ", found " +
                                        std::to_string(clusters[c]));
        }
        ++sizes_[static_cast<std::size_t>(clusters[c])];
    }
    std::size_t n_slots = 0;
    for (std::size_t i = 0; i < n_centres; ++i) {
        starts_[i] = n_slots;
        n_slots += chunks_of(sizes_[i], kGroupClasses) * kGroupClasses;
    }
    classes_.resize(n_slots);
    std::vector<std::size_t> next = starts_;
    for (std::size_t c = 0; c < n_classes; ++c) {  // ascending within each cluster
        classes_[next[static_cast<std::size_t>(clusters[c])]++] = static_cast<std::uint32_t>(c);
    }
    bytes_ = AlignedArray<std::uint8_t>(n_slots * n_bytes);
    for (std::size_t i = 0; i < n_centres; ++i) {
        lay_out(weights, n_bytes, classes_.data() + starts_[i], sizes_[i], bytes_.data() + starts_[i] * n_bytes);
    }
    if (handicaps.of_lane.size() > 0) {
        handicaps_ = Handicaps(n_slots);
        for (std::size_t i = 0; i < n_centres; ++i) {
            for (std::size_t slot = 0; slot < chunks_of(sizes_[i], kGroupClasses) * kGroupClasses; ++slot) {
                const std::uint32_t c = classes_[starts_[i] + std::min(slot, sizes_[i] - 1)];
                handicaps_.of_lane[starts_[i] + slot] = handicaps.of_lane[c];
            }
        }
        handicaps_.narrow();
    }
    centre_bytes_ = AlignedArray<std::uint8_t>(chunks_of(n_centres, kGroupClasses) * kGroupClasses * n_bytes);
    lay_out(centres, n_bytes, nullptr, n_centres, centre_bytes_.data());
}

void ClassIndex::prefetch(std::size_t cluster) const {
    const std::uint8_t* const bytes = bytes_.data() + starts_[cluster] * n_bytes_;
    for (std::size_t i = 0; i < sizes_[cluster] * n_bytes_; i += 64) __builtin_prefetch(bytes + i);
}

void ClassIndex::collect(const std::uint32_t* query, Candidates& candidates) const {
    thread_local Scratch scratch;
    const std::size_t wanted = candidates.wanted;
    scratch.products.resize(n_centres_);
    const ClassGroups centres{centre_bytes_.data(), chunks_of(n_centres_, kGroupClasses), n_bytes_, n_centres_,
                              nullptr};
    kernels_.scores(centres, query, 1, 0, scratch.products.data());
    order_by_distance(scratch.products, 8 * n_bytes_, scratch);

    const std::size_t room = candidate_room(wanted);
    if (scratch.found.size() < 2 * room) scratch.found = AlignedArray<std::uint32_t>(2 * room);
    std::vector<std::uint64_t>& best = scratch.best;
    best.clear();
    std::uint32_t threshold = ~std::uint32_t{0};
    for (std::size_t visited = 0; visited < n_centres_ && (visited < n_probe_ || best.size() < wanted); ++visited) {
        const std::size_t cluster = scratch.order[visited];
        if (visited + 1 < n_probe_) prefetch(scratch.order[visited + 1]);
        if (sizes_[cluster] == 0) continue;
        ClassGroups members{bytes_.data() + starts_[cluster] * n_bytes_,
                                  chunks_of(sizes_[cluster], kGroupClasses), n_bytes_, sizes_[cluster], nullptr};
        handicaps_.add_to(members, starts_[cluster]);
        Candidates found{scratch.found.data(), scratch.found.data() + room, 0, wanted, threshold};
        kernels_.collect(members, query, 1, &found);
        if (found.size == 0) continue;
        const std::uint32_t* const classes = classes_.data() + starts_[cluster];
        for (std::size_t i = 0; i < found.size; ++i) {
            best.push_back(std::uint64_t{found.distances[i]} << 32 | classes[found.classes[i]]);
        }
        if (best.size() < wanted) continue;
        std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(wanted - 1), best.end());
        best.resize(wanted);
        // Classes are not visited in ascending order here: a later one of equal distance may have a lower index.
        threshold = static_cast<std::uint32_t>(best.back() >> 32) + 1;
    }
    for (std::uint64_t& key : best) key = key << 32 | key >> 32;
    std::sort(best.begin(), best.end());
    for (std::size_t i = 0; i < wanted; ++i) {
        candidates.classes[i] = static_cast<std::uint32_t>(best[i] >> 32);
        candidates.distances[i] = static_cast<std::uint32_t>(best[i]);
    }
    candidates.size = wanted;
}

}  // namespace bitclass
