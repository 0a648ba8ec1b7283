// Class weights grouped into clusters: a search visits only the few clusters nearest to a code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.hpp"
#include "search.hpp"

namespace bitclass {

class ClassIndex {
public:
    // Weights and centres are packed rows of n_bytes; clusters[c] is the centre of class c, in [0, n_centres).
    // Handicaps are those of the classes in order, or none; they have no part in the choice of clusters.
    ClassIndex(const SearchKernels& kernels, const std::uint8_t* weights, std::size_t n_classes, std::size_t n_bytes,
               const std::uint8_t* centres, std::size_t n_centres, const std::int64_t* clusters, std::size_t n_probe,
               const Handicaps& handicaps);

    // Fills an empty list with the `wanted` nearest classes of the n_probe clusters nearest to the query, ordered by
    // index; ties between clusters go to the lowest number. If these contain fewer classes than wanted, further
    // clusters are visited.
    void collect(const std::uint32_t* query, Candidates& candidates) const;

private:
    // Prefetches the classes of a cluster while another is scanned.
    void prefetch(std::size_t cluster) const;

    const SearchKernels& kernels_;
    std::size_t n_bytes_;
    std::size_t n_centres_;
    std::size_t n_probe_;
    AlignedArray<std::uint8_t> centre_bytes_;
    AlignedArray<std::uint8_t> bytes_;         // by cluster, each padded to whole groups
    Handicaps handicaps_;                      // of the slots of bytes_
    std::vector<std::uint32_t> classes_;       // class of each slot of bytes_
    std::vector<std::size_t> starts_, sizes_;  // of the clusters
};

}  // namespace bitclass
