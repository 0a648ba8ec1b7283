// Hamming search: scans over the interleaved bytes of 64 classes, one class per lane.
//
// Distances start at the handicaps of the classes. They are counted in 8-bit lanes for codes of at most 32 bytes and
// small handicaps, and in wider lanes otherwise. In 8 bits, a distance of more than 255 is counted as 255: a search
// whose result could depend on it is repeated with more bits.

struct GroupCounts {
    Bytes parts[kParts<std::uint8_t>];
};

// Size of a block of classes that stays in the second-level cache while the queries of a chunk scan it.
constexpr std::size_t kBytesPerBlock = 1 << 18;
// The largest value of a lane; a constant, because numeric_limits::max is an inline function.
template <class Lane>
constexpr Lane kLaneMax = std::numeric_limits<Lane>::max();
constexpr std::uint32_t kMaxByteHandicap = Handicaps::kMaxInBytes;
// Queries that share a load of classes; more are no faster.
constexpr int kQueriesTogether = 4;

// The largest distance, with a handicap.
std::uint32_t largest_distance(const ClassGroups& classes) {
    return static_cast<std::uint32_t>(8 * classes.n_bytes) + classes.max_handicap;
}

// Counts differing bits in bytes [begin, end), at most 32, of the codes of a few groups, and adds them to handicaps, or
// to 0 if these are null. The sums cannot exceed 255 in the first `n_safe` bytes; larger ones are counted as 255.
template <int kGroups, int kQueries, int kBytes>
inline __attribute__((always_inline)) void count_bytes(const std::uint8_t* groups, const std::uint8_t* handicaps,
                                                       const std::uint32_t* queries, std::size_t n_bytes,
                                                       std::size_t begin, std::size_t end, std::size_t n_safe,
                                                       GroupCounts (*counts)[kQueries]) {
    if constexpr (kBytes > 0) begin = 0, end = n_bytes = kBytes;
    constexpr bool kMayOverflow = kBytes == 0 || 8 * kBytes + kMaxByteHandicap > 255;
    const std::size_t safe_end = !kMayOverflow || end - begin < n_safe ? end : begin + n_safe;
#pragma GCC unroll 4
    for (std::size_t part = 0; part < kParts<std::uint8_t>; ++part) {
        Bytes count[kGroups][kQueries];
#pragma GCC unroll 2
        for (std::size_t g = 0; g < kGroups; ++g) {
            const std::size_t at = g * kGroupClasses + part * kVectorBytes;
            const Bytes start = handicaps == nullptr ? Bytes{} : load<Bytes>(handicaps + at);
#pragma GCC unroll 4
            for (int q = 0; q < kQueries; ++q) count[g][q] = start;
        }
        const auto visit = [&](std::size_t byte, auto add) __attribute__((always_inline)) {
            Bytes classes[kGroups];
#pragma GCC unroll 2
            for (int g = 0; g < kGroups; ++g) {
                const std::size_t at = (static_cast<std::size_t>(g) * n_bytes + byte) * kGroupClasses;
                classes[g] = load<Bytes>(groups + at + part * kVectorBytes);
            }
#pragma GCC unroll 4
            for (int q = 0; q < kQueries; ++q) {
                const auto query = Vector<std::uint32_t>{} + queries[static_cast<std::size_t>(q) * n_bytes + byte];
#pragma GCC unroll 2
                for (int g = 0; g < kGroups; ++g) add(count[g][q], Isa::count(classes[g] ^ (Bytes)query));
            }
        };
        // Unrolled only partially: unrolled fully, the queries would need more registers than there are.
#pragma GCC unroll 2
        for (std::size_t byte = begin; byte < safe_end; ++byte) {
            visit(byte, [](Bytes& sum, Bytes bits) __attribute__((always_inline)) { sum += bits; });
        }
        if constexpr (kMayOverflow) {
            for (std::size_t byte = safe_end; byte < end; ++byte) {
                visit(byte, [](Bytes& sum, Bytes bits) __attribute__((always_inline)) {
                    sum = Isa::add_saturated(sum, bits);
                });
            }
        }
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
            for (int q = 0; q < kQueries; ++q) counts[g][q].parts[part] = count[g][q];
        }
    }
}

template <class Lane, int kGroups, int kQueries, int kBytes, class Sink>
inline __attribute__((always_inline)) void scan_groups(const ClassGroups& classes, std::size_t first,
                                                       std::size_t n_bytes, std::size_t n_safe,
                                                       const std::uint32_t* queries, Sink&& sink) {
    const std::uint8_t* const groups = classes.bytes + first * n_bytes * kGroupClasses;
    GroupCounts counts[kGroups][kQueries];
    if constexpr (sizeof(Lane) == 1) {
        const std::uint8_t* const handicaps =
            classes.byte_handicaps == nullptr ? nullptr : classes.byte_handicaps + first * kGroupClasses;
        count_bytes<kGroups, kQueries, kBytes>(groups, handicaps, queries, n_bytes, 0, n_bytes, n_safe, counts);
#pragma GCC unroll 2
        for (std::size_t g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
            for (int q = 0; q < kQueries; ++q) sink(q, first + g, counts[g][q].parts);
        }
    } else {
        alignas(64) Lane sums[kGroups][kQueries][kGroupClasses] = {};
        for (std::size_t g = 0; classes.handicaps != nullptr && g < kGroups; ++g) {
            const std::uint32_t* const handicaps = classes.handicaps + (first + g) * kGroupClasses;
            for (int q = 0; q < kQueries; ++q) {
                for (std::size_t i = 0; i < kGroupClasses; ++i) sums[g][q][i] = static_cast<Lane>(handicaps[i]);
            }
        }
        constexpr std::size_t kStretch = 31;  // bytes whose set bits 8 bits can count
        for (std::size_t at = 0; at < n_bytes; at += kStretch) {
            const std::size_t stop = n_bytes - at < kStretch ? n_bytes : at + kStretch;
            count_bytes<kGroups, kQueries, 0>(groups, nullptr, queries, n_bytes, at, stop, kStretch, counts);
            for (std::size_t g = 0; g < kGroups; ++g) {
                for (int q = 0; q < kQueries; ++q) {
                    std::uint8_t of_lane[kGroupClasses];
                    std::memcpy(of_lane, &counts[g][q], sizeof of_lane);
                    Lane* const sum = sums[g][q];
                    for (std::size_t i = 0; i < kGroupClasses; ++i) sum[i] = static_cast<Lane>(sum[i] + of_lane[i]);
                }
            }
        }
        for (std::size_t g = 0; g < kGroups; ++g) {
            for (int q = 0; q < kQueries; ++q) {
                Vector<Lane> distances[kParts<Lane>];
                std::memcpy(distances, sums[g][q], sizeof distances);
                sink(q, first + g, distances);
            }
        }
    }
}

// Calls sink(q, group, distances) for each query and each group in [begin, end); distances are vectors of
// lanes, one per class. kBytes = 0 means any number of bytes.
template <class Lane, int kQueries, int kBytes, class Sink>
inline __attribute__((always_inline)) void scan(const ClassGroups& classes, std::size_t begin, std::size_t end,
                                                const std::uint32_t* queries, Sink&& sink) {
    const std::size_t n_bytes = kBytes > 0 ? std::size_t(kBytes) : classes.n_bytes;
    const std::size_t n_safe = (255 - classes.max_handicap) / 8;  // only used if handicaps fit 8 bits
    constexpr int kTogether = Isa::kGroupsTogether;
    std::size_t g = begin;
    for (; g + kTogether <= end; g += kTogether) {
        scan_groups<Lane, kTogether, kQueries, kBytes>(classes, g, n_bytes, n_safe, queries, sink);
    }
    for (; g < end; ++g) scan_groups<Lane, 1, kQueries, kBytes>(classes, g, n_bytes, n_safe, queries, sink);
}

// Whether distances are counted in 8 bits.
bool in_bytes(const ClassGroups& classes) { return classes.n_bytes <= 32 && classes.max_handicap <= kMaxByteHandicap; }


// Calls visit(lane) with an integer of more than 8 bits that is larger than any distance.
template <class Visit>
void with_wide_lanes(const ClassGroups& classes, Visit visit) {
    if (largest_distance(classes) < kLaneMax<std::uint16_t>) return visit(std::uint16_t{});
    visit(std::uint32_t{});
}

// Calls visit(begin, end) for each block of groups.
template <class Visit>
void by_blocks(std::size_t n_groups, std::size_t groups_per_block, Visit visit) {
    for (std::size_t begin = 0; begin < n_groups; begin += groups_per_block) {
        visit(begin, n_groups - begin < groups_per_block ? n_groups : begin + groups_per_block);
    }
}

// Calls visit(begin, end, q, together, bytes) for each block of groups and the queries from q on, with compile-time
// constants for the number of queries, kQueriesTogether or 1, and the number of bytes of common codes, 0 for others.
template <class Lane, class Visit>
void scan_blocks(const ClassGroups& classes, std::size_t groups_per_block, std::size_t n_queries, Visit visit) {
    const auto with_length = [&](auto bytes) {
        by_blocks(classes.n_groups, groups_per_block, [&](std::size_t begin, std::size_t end) {
            std::size_t q = 0;
            for (; q + kQueriesTogether <= n_queries; q += kQueriesTogether) {
                visit(begin, end, q, std::integral_constant<int, kQueriesTogether>{}, bytes);
            }
            for (; q < n_queries; ++q) visit(begin, end, q, std::integral_constant<int, 1>{}, bytes);
        });
    };
    if constexpr (sizeof(Lane) == 1) {
        if (classes.n_bytes == 16) return with_length(std::integral_constant<int, 16>{});
        if (classes.n_bytes == 32) return with_length(std::integral_constant<int, 32>{});
    }
    with_length(std::integral_constant<int, 0>{});
}

template <class Lane, int kQueries, int kBytes>
void nearest_in_block(const ClassGroups& classes, std::size_t begin, std::size_t end, const std::uint32_t* queries,
                      std::uint64_t* best) {
    using Lanes = Vector<Lane>;
    constexpr std::size_t kN = kParts<Lane>;
    Lanes smallest[kQueries][kN];
    Lanes steps[kQueries][kN] = {};  // the group in which each was found, counted from begin
    for (auto& of_query : smallest) {
        for (auto& part : of_query) part = ~Lanes{};
    }
    scan<Lane, kQueries, kBytes>(classes, begin, end, queries,
                                 [&](int q, std::size_t g, const Lanes* distances) __attribute__((always_inline)) {
                                     const Lanes step = Lanes{} + static_cast<Lane>(g - begin);
#pragma GCC unroll 4
                                     for (std::size_t i = 0; i < kN; ++i) {
                                         const Lanes before = smallest[q][i];
                                         smallest[q][i] = distances[i] < before ? distances[i] : before;
                                         steps[q][i] = smallest[q][i] == before ? steps[q][i] : step;
                                     }
                                 });
    for (int q = 0; q < kQueries; ++q) {
        alignas(64) Lane distance[kGroupClasses], step[kGroupClasses];
        std::memcpy(distance, smallest[q], sizeof distance);
        std::memcpy(step, steps[q], sizeof step);
        Lane least = kLaneMax<Lane>, first_step = kLaneMax<Lane>;
        for (std::size_t i = 0; i < kGroupClasses; ++i) least = distance[i] < least ? distance[i] : least;
        for (std::size_t i = 0; i < kGroupClasses; ++i) {
            step[i] = distance[i] == least ? step[i] : kLaneMax<Lane>;
        }
        for (std::size_t i = 0; i < kGroupClasses; ++i) first_step = step[i] < first_step ? step[i] : first_step;
        std::memcpy(steps[q], step, sizeof step);
        const std::uint64_t lanes = Isa::below(steps[q], static_cast<Lane>(first_step + 1));
        const auto lane = static_cast<std::size_t>(__builtin_ctzll(lanes));
        const std::uint64_t key = std::uint64_t{least} << 32 | ((begin + first_step) * kGroupClasses + lane);
        if (key < best[q]) best[q] = key;
    }
}

template <class Lane>
void nearest_with(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                  std::uint64_t* best) {
    const std::size_t fitting = kBytesPerBlock / (classes.n_bytes * kGroupClasses);
    const std::size_t groups_per_block = fitting < 1 ? 1 : fitting < 255 ? fitting : 255;  // steps have 8 bits
    scan_blocks<Lane>(classes, groups_per_block, n_queries,
                      [&](std::size_t begin, std::size_t end, std::size_t q, auto together, auto bytes) {
                          nearest_in_block<Lane, decltype(together)::value, decltype(bytes)::value>(
                              classes, begin, end, queries + q * classes.n_bytes, best + q);
                      });
}

void nearest(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries, std::uint64_t* best) {
    const auto with_wide = [&](std::size_t first, std::size_t n) {
        with_wide_lanes(classes, [&](auto lane) {
            nearest_with<decltype(lane)>(classes, queries + first * classes.n_bytes, n, best + first);
        });
    };
    if (!in_bytes(classes)) return with_wide(0, n_queries);
    nearest_with<std::uint8_t>(classes, queries, n_queries, best);
    for (std::size_t q = 0; largest_distance(classes) > 255 && q < n_queries; ++q) {
        if (best[q] >> 32 < 255) continue;
        best[q] = ~std::uint64_t{0};
        with_wide(q, 1);
    }
}

// Scores are computed for blocks of classes that stay in the first-level cache, query by query: each query
// writes contiguous memory.
template <class Lane>
void scores_with(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries, std::int32_t n_bits,
                 std::int32_t* scores) {
    constexpr std::size_t kBytesInCache = 1 << 14;
    const std::size_t group_bytes = classes.n_bytes * kGroupClasses;
    const std::size_t groups_per_block = group_bytes < kBytesInCache ? kBytesInCache / group_bytes : 1;
    by_blocks(classes.n_groups, groups_per_block, [&](std::size_t begin, std::size_t end) {
        for (std::size_t q = 0; q < n_queries; ++q) {
            std::int32_t* const row = scores + q * classes.n_classes;
            scan<Lane, 1, 0>(classes, begin, end, queries + q * classes.n_bytes,
                             [&](int, std::size_t g, const Vector<Lane>* distances) {
                                 Lane of_lane[kGroupClasses];
                                 std::memcpy(of_lane, distances, sizeof of_lane);
                                 std::int32_t products[kGroupClasses];
                                 for (std::size_t i = 0; i < kGroupClasses; ++i) {
                                     products[i] = n_bits - 2 * static_cast<std::int32_t>(of_lane[i]);
                                 }
                                 const std::size_t left = classes.n_classes - g * kGroupClasses;
                                 std::memcpy(row + g * kGroupClasses, products,
                                             (left < kGroupClasses ? left : kGroupClasses) * sizeof *products);
                             });
        }
    });
}

void scores(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries, std::int32_t n_bits,
            std::int32_t* scores) {
    const auto with = [&](auto lane) { scores_with<decltype(lane)>(classes, queries, n_queries, n_bits, scores); };
    if (in_bytes(classes) && largest_distance(classes) <= 255) return with(std::uint8_t{});
    with_wide_lanes(classes, with);
}

inline std::size_t count_below(const std::uint32_t* distances, std::size_t n, std::uint32_t limit) {
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < n; ++i) count += distances[i] < limit;
    return count;
}

// Drops all but the nearest `wanted` candidates; ties go to the lowest index.
void keep_nearest(Candidates& candidates, std::uint32_t largest) {
    const std::size_t n = candidates.size;
    const std::size_t wanted = candidates.wanted;
    if (n <= wanted) return;
    std::uint32_t* const distances = candidates.distances;
    std::uint32_t* const classes = candidates.classes;
    // The last distance to keep is the largest value with fewer than `wanted` distances below it. It is at
    // most the threshold, and usually one of the four values up to it.
    const std::uint32_t most = candidates.threshold < largest ? candidates.threshold : largest;
    std::uint32_t last = most;
    std::size_t nearer = 0;
    std::uint32_t counts[4] = {};
    for (std::size_t i = 0; i < n; ++i) {
        for (std::uint32_t t = 0; t < 4; ++t) counts[t] += distances[i] + t < most;
    }
    std::uint32_t lower_by = 0;
    for (int t = 0; t < 4; ++t) lower_by += counts[t] >= wanted;
    if (__builtin_expect(lower_by < 4 && most >= 4, 1)) {
        last = most - lower_by;
        nearer = counts[lower_by];
    } else {
        last = 0;
        for (std::uint32_t bit = 1u << (31 - __builtin_clz(largest)); bit != 0; bit >>= 1) {
            const std::size_t count = count_below(distances, n, last + bit);
            last += count < wanted ? bit : 0;
            nearer = count < wanted ? count : nearer;
        }
    }
    // Of those at the last distance, those before index `end` are kept.
    const std::size_t equals = wanted - nearer;
    std::size_t end = 0, n_equal = 0;
    for (std::size_t i = 0; i < n; ++i) {
        n_equal += distances[i] == last;
        end = n_equal <= equals ? i + 1 : end;
    }
    std::size_t size = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t distance = distances[i];
        distances[size] = distance;
        classes[size] = classes[i];
        size += distance < last + (i < end);
    }
    candidates.size = size;
    candidates.threshold = last;
}

// Distances of a block of classes to one query.
template <class Lane>
struct BlockDistances {
    alignas(64) Lane of[kClassesPerBlock + kGroupClasses];  // not a power of two, to avoid cache conflicts
};

// Masks of the classes below the limit of a query, and of the groups that contain any.
struct Marks {
    std::uint64_t masks[kClassesPerBlock / kGroupClasses];
    std::uint64_t groups = 0;

    void set(std::size_t group, std::uint64_t mask) {
        masks[group] = mask;
        groups |= std::uint64_t{mask != 0} << group;
    }
};

// Adds the marked classes of a block that starts at group `begin`. With few branches, because they would be
// hard to predict.
template <class Lane>
void add_candidates(const BlockDistances<Lane>& distances, std::size_t begin, const Marks& marks,
                    Candidates& candidates) {
    std::size_t size = candidates.size;
    for (std::uint64_t groups = marks.groups; groups != 0; groups &= groups - 1) {
        const auto g = static_cast<std::size_t>(__builtin_ctzll(groups));
        std::uint64_t mask = marks.masks[g];
        const auto add = [&](std::size_t lane) __attribute__((always_inline)) {
            candidates.classes[size] = static_cast<std::uint32_t>((begin + g) * kGroupClasses + lane);
            candidates.distances[size] = distances.of[g * kGroupClasses + lane];
            size += mask != 0;
            mask &= mask - 1;
        };
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) add(static_cast<std::size_t>(__builtin_ctzll(mask | std::uint64_t{1} << 63)));
        while (__builtin_expect(mask != 0, 0)) add(static_cast<std::size_t>(__builtin_ctzll(mask)));
    }
    candidates.size = size;
}

// Limits such that at least `wanted` distances of each query are below, but few more: just above the
// `wanted` smallest of the 64 minima per lane.
template <class Lane, int kQueries>
void limits_from_lanes(const BlockDistances<Lane>* distances, std::size_t n_groups, std::size_t wanted,
                       std::uint32_t largest, Lane* limits) {
    using Lanes = Vector<Lane>;
    constexpr std::size_t kN = kParts<Lane>;
    Lanes smallest[kQueries][kN];
    for (int q = 0; q < kQueries; ++q) {
        for (auto& part : smallest[q]) part = ~Lanes{};
        for (std::size_t g = 0; g < n_groups; ++g) {
            for (std::size_t i = 0; i < kN; ++i) {
                const std::size_t at = g * kGroupClasses + i * (kVectorBytes / sizeof(Lane));
                const auto next = load<Lanes>(distances[q].of + at);
                smallest[q][i] = next < smallest[q][i] ? next : smallest[q][i];
            }
        }
        limits[q] = 0;
    }
    // For all queries at once, to hide latency.
    const unsigned top = 1u << (31 - __builtin_clz(largest));
    for (auto bit = static_cast<Lane>(sizeof(Lane) == 1 && top > 128 ? 128 : top); bit != 0; bit >>= 1) {
#pragma GCC unroll 4
        for (int q = 0; q < kQueries; ++q) {
            const auto larger = static_cast<Lane>(limits[q] | bit);
            const int count = __builtin_popcountll(Isa::below(smallest[q], larger));
            limits[q] = static_cast<std::size_t>(count) < wanted ? larger : limits[q];
        }
    }
    for (int q = 0; q < kQueries; ++q) limits[q] += limits[q] < kLaneMax<Lane>;
}

// Classes below a limit, as their lanes and groups.
template <class Lane>
struct NearClasses {
    alignas(64) Lane distances[2 * kGroupClasses];
    std::uint8_t lanes[2 * kGroupClasses];
    std::uint8_t groups[2 * kGroupClasses];
    std::size_t size;
};

template <class Lane>
std::uint64_t lanes_below(const Lane* distances, Lane limit) {
    Vector<Lane> vectors[kParts<Lane>];
    std::memcpy(vectors, distances, sizeof vectors);
    return Isa::below(vectors, limit);
}

// Finds the classes below the limit, at most 64; returns false if there are more.
template <class Lane>
bool find_near(const BlockDistances<Lane>& distances, std::size_t n_groups, Lane limit, NearClasses<Lane>& near) {
    std::size_t size = 0;
    for (std::size_t g = 0; g < n_groups; ++g) {
        const Lane* const group = distances.of + g * kGroupClasses;
        size += Isa::collect(group, lanes_below(group, limit), g, near.distances + size, near.lanes + size,
                             near.groups + size);
        if (__builtin_expect(size > kGroupClasses, 0)) return false;
    }
    for (std::size_t i = 0; i < kGroupClasses; ++i) near.distances[size + i] = kLaneMax<Lane>;
    near.size = size;
    return true;
}

// Fills an empty list with the nearest of the near classes.
template <class Lane>
void take_nearest(const NearClasses<Lane>& near, Lane limit, Candidates& candidates) {
    // The largest value with fewer than `wanted` distances below it. Several values are tried at once to hide
    // latency.
    const std::size_t wanted = candidates.wanted;
    auto last = static_cast<Lane>(limit - 1);
    for (bool lower = true; lower;) {
        constexpr int kTries = 4;
        int lower_by = 0;
#pragma GCC unroll 4
        for (int t = 0; t < kTries; ++t) {
            const auto value = static_cast<Lane>(last > Lane(t) ? last - Lane(t) : 0);
            lower_by += static_cast<std::size_t>(__builtin_popcountll(lanes_below(near.distances, value))) >= wanted;
        }
        last = static_cast<Lane>(last - lower_by);
        lower = lower_by == kTries;
    }
    const std::uint64_t nearer = lanes_below(near.distances, last);
    const std::uint64_t equal = lanes_below(near.distances, static_cast<Lane>(last + 1)) & ~nearer;
    std::uint64_t kept =
        nearer | Isa::lowest_bits(equal, wanted - static_cast<std::size_t>(__builtin_popcountll(nearer)));
    const auto n_kept = static_cast<std::size_t>(__builtin_popcountll(kept));
    for (std::size_t i = 0; i < n_kept; ++i, kept &= kept - 1) {
        const auto at = static_cast<std::size_t>(__builtin_ctzll(kept));
        candidates.distances[i] = near.distances[at];
        candidates.classes[i] = std::uint32_t{near.groups[at]} * kGroupClasses + near.lanes[at];
    }
    candidates.size = n_kept;
    candidates.threshold = last;
}

template <class Lane, int kQueries, int kBytes>
void collect_from(const ClassGroups& classes, std::size_t first, std::size_t last, const std::uint32_t* queries,
                  Candidates* candidates) {
    using Lanes = Vector<Lane>;
    constexpr Lane kNone = kLaneMax<Lane>;  // more than any distance
    constexpr std::size_t kGroups = kClassesPerBlock / kGroupClasses;
    static_assert(kGroups == 64, "the groups of a block are a mask of 64 bits");
    const std::size_t wanted = candidates[0].wanted;
    BlockDistances<Lane> kept[kQueries];
    Lane limits[kQueries];
    for (int q = 0; q < kQueries; ++q) {
        limits[q] = candidates[q].threshold < kNone ? static_cast<Lane>(candidates[q].threshold) : kNone;
    }
    for (std::size_t begin = first; begin < last; begin += kGroups) {
        const std::size_t end = last - begin < kGroups ? last : begin + kGroups;
        Marks marks[kQueries];
        const auto keep = [&](int q, std::size_t g, const Lanes* distances) __attribute__((always_inline)) {
            std::memcpy(kept[q].of + (g - begin) * kGroupClasses, distances, kGroupClasses * sizeof(Lane));
        };
        const bool nothing_known = begin == 0 && candidates[0].threshold == ~std::uint32_t{0};
        if (nothing_known && wanted <= kGroupClasses) {
            // The limit follows from the distances of the first block.
            scan<Lane, kQueries, kBytes>(classes, begin, end, queries, keep);
            for (int q = 0; q < kQueries; ++q) {
                for (std::size_t i = classes.n_classes; i < end * kGroupClasses; ++i) kept[q].of[i] = kNone;
            }
            limits_from_lanes<Lane, kQueries>(kept, end, wanted, largest_distance(classes), limits);
            // All queries in each step, so that stores have completed before they are loaded.
            NearClasses<Lane> near[kQueries];
            bool few[kQueries];
            for (int q = 0; q < kQueries; ++q) few[q] = find_near(kept[q], end, limits[q], near[q]);
            for (int q = 0; q < kQueries; ++q) {
                candidates[q].threshold = limits[q] - 1u;
                if (few[q]) {
                    take_nearest(near[q], limits[q], candidates[q]);
                } else {
                    for (std::size_t g = 0; g < end; ++g) {
                        marks[q].set(g, lanes_below(kept[q].of + g * kGroupClasses, limits[q]));
                    }
                }
            }
        } else {
            scan<Lane, kQueries, kBytes>(classes, begin, end, queries,
                                         [&](int q, std::size_t g, const Lanes* distances)
                                             __attribute__((always_inline)) {
                                                 keep(q, g, distances);
                                                 marks[q].set(g - begin, Isa::below(distances, limits[q]));
                                             });
        }
        for (int q = 0; q < kQueries; ++q) {
            Candidates& mine = candidates[q];
            add_candidates(kept[q], begin, marks[q], mine);
            // The lanes past the last class are at the end.
            while (mine.size > 0 && mine.classes[mine.size - 1] >= classes.n_classes) --mine.size;
            if (end == classes.n_groups || mine.size > 2 * wanted) keep_nearest(mine, largest_distance(classes));
            if (mine.threshold < limits[q]) limits[q] = static_cast<Lane>(mine.threshold);
        }
    }
}

template <class Lane>
void collect_with(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                  Candidates* candidates) {
    constexpr std::size_t kGroups = kClassesPerBlock / kGroupClasses;
    const std::size_t fitting = kBytesPerBlock / (classes.n_bytes * kClassesPerBlock) * kGroups;
    const std::size_t groups_per_pass = fitting < kGroups ? kGroups : fitting;
    scan_blocks<Lane>(classes, groups_per_pass, n_queries,
                      [&](std::size_t begin, std::size_t end, std::size_t q, auto together, auto bytes) {
                          collect_from<Lane, decltype(together)::value, decltype(bytes)::value>(
                              classes, begin, end, queries + q * classes.n_bytes, candidates + q);
                      });
}

void collect(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries, Candidates* candidates) {
    const auto with_wide = [&](std::size_t first, std::size_t n) {
        with_wide_lanes(classes, [&](auto lane) {
            collect_with<decltype(lane)>(classes, queries + first * classes.n_bytes, n, candidates + first);
        });
    };
    if (!in_bytes(classes)) return with_wide(0, n_queries);
    // If a list starts with a threshold that fits 8-bit lanes, no class below it is missed.
    const std::uint32_t threshold = candidates[0].threshold;
    collect_with<std::uint8_t>(classes, queries, n_queries, candidates);
    for (std::size_t q = 0; threshold >= kLaneMax<std::uint8_t> && q < n_queries; ++q) {
        if (candidates[q].size >= candidates[q].wanted) continue;
        candidates[q].size = 0;
        candidates[q].threshold = threshold;
        with_wide(q, 1);
    }
}

void rescore(const ClassGroups& classes, const Candidates& candidates, const std::int8_t* activations,
             std::int32_t* scores) {
    const std::size_t length = (classes.n_bytes + 7) / 8;
    std::size_t i = 0;
    for (; i + 16 <= candidates.size; i += 16) {
        Isa::products(classes.rows, length, candidates.classes + i, activations, scores + i);
    }
    for (; i < candidates.size; ++i) {
        scores[i] = Isa::product_of(classes.rows + candidates.classes[i] * length, length, activations);
    }
}

// Index of the candidate with the largest score; ties go to the nearest, then to the first.
std::size_t best_scored(const Candidates& candidates, const std::int32_t* scores) {
    std::int32_t most = scores[0];
    for (std::size_t i = 1; i < candidates.size; ++i) most = scores[i] > most ? scores[i] : most;
    std::uint32_t least = ~std::uint32_t{0};
    std::size_t best = 0;
    for (std::size_t i = 0; i < candidates.size; ++i) {
        const bool better = scores[i] == most && candidates.distances[i] < least;
        least = better ? candidates.distances[i] : least;
        best = better ? i : best;
    }
    return best;
}

constexpr SearchKernels kSearchKernels = {&nearest, &scores, &collect, &rescore, &best_scored};
