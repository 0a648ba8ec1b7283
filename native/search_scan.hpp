// The scans of all SIMD levels, written once over a vector of 32-bit lanes, one class a lane.
//
// A level's file defines `Lanes` and includes this file inside its namespace. Everything here has
// internal linkage: the same template built for two instruction sets must not be merged into one.
//
// `Lanes` offers, by itself or from PlainLanes,
//   Register, Count     a vector of lanes; the bits counted so far in each lane
//   kWidth              lanes a register
//   kWordsPerCount        words a Count can take before it would overflow
//   load, broadcast, differing (xor), none, add_bits, total, add, key, smaller, lowest, below, store,
//   product             n_bits - 2 * distances
//   narrow_64           stores 64 distances as integers of 8, 16 or 32 bits
//   below_of_64         which of 64 such distances are below a limit
//   collect_64          writes those of a mask side by side, their places and the step; perhaps others behind them
//   lowest_bits         the lowest n bits of a mask
//   compress            writes the lanes of a mask side by side, and perhaps others behind them; returns how many
//   products            inner products of 16 classes, as rows of bits, and activations

namespace {

// What a level has no better instructions for.
template <class Lanes>
struct PlainLanes {
    template <class Narrow, class Register>
    static void narrow_64(Narrow* at, const Register* distances) {
        std::uint32_t of_lane[64];
        for (std::size_t i = 0; i < 64 / Lanes::kWidth; ++i) Lanes::store(of_lane + i * Lanes::kWidth, distances[i]);
        for (std::size_t i = 0; i < 64; ++i) at[i] = static_cast<Narrow>(of_lane[i]);
    }
    template <class Narrow>
    static std::uint64_t below_of_64(const Narrow* distances, Narrow limit) {
        std::uint64_t mask = 0;
        for (int i = 0; i < 64; ++i) mask |= std::uint64_t{distances[i] < limit} << i;
        return mask;
    }
    template <class Narrow>
    static std::size_t collect_64(const Narrow* distances, std::uint64_t mask, std::size_t step, Narrow* near,
                                  std::uint8_t* places, std::uint8_t* steps) {
        std::size_t n = 0;
        for (; mask != 0; mask &= mask - 1, ++n) {
            places[n] = static_cast<std::uint8_t>(__builtin_ctzll(mask));
            steps[n] = static_cast<std::uint8_t>(step);
            near[n] = distances[places[n]];
        }
        return n;
    }
    static std::uint64_t lowest_bits(std::uint64_t mask, std::size_t n) {
        std::uint64_t rest = mask;
        for (; n > 0; --n) rest &= rest - 1;
        return mask & ~rest;
    }
    template <class Register>
    static std::size_t compress(std::uint32_t* at, Register values, std::uint32_t mask) {
        std::uint32_t of_lane[Lanes::kWidth];
        Lanes::store(of_lane, values);
        std::size_t n = 0;
        for (; mask != 0; mask &= mask - 1) at[n++] = of_lane[__builtin_ctz(mask)];
        return n;
    }
    static void products(const std::uint64_t* const* rows, std::size_t length, const std::int8_t* activations,
                         std::int32_t* products) {
        for (int i = 0; i < 16; ++i) products[i] = Lanes::product_of(rows[i], length, activations);
    }
};

// Keys of a scan are distance << kStepBits | step. The lane is not part of a key: it is read off
// the vector of smallest keys at the end.
constexpr int kStepBits = 12;
constexpr std::size_t kMaxSteps = std::size_t{1} << kStepBits;
// Classes that stay in the second-level cache while the queries of a chunk pass over them.
constexpr std::size_t kWordsPerBlock = 1 << 16;

// Distances of one group of classes to one query. kWords = 0 stands for any number of words.
template <class Lanes, int kWords>
inline typename Lanes::Register distances_of(const std::uint32_t* group, const std::uint32_t* query,
                                             std::size_t n_words) {
    if constexpr (kWords > 0) {
        static_assert(kWords <= Lanes::kWordsPerCount, "a count of this many words would overflow");
        typename Lanes::Count count = Lanes::none();
#pragma GCC unroll 16
        for (int word = 0; word < kWords; ++word) {
            count = Lanes::add_bits(
                count, Lanes::differing(Lanes::load(group + word * Lanes::kWidth), Lanes::broadcast(query[word])));
        }
        return Lanes::total(count);
    } else {
        typename Lanes::Register distances = Lanes::broadcast(0);
        for (std::size_t start = 0; start < n_words; start += Lanes::kWordsPerCount) {
            const std::size_t rest = n_words - start;
            const std::size_t end = start + (rest < Lanes::kWordsPerCount ? rest : Lanes::kWordsPerCount);
            typename Lanes::Count count = Lanes::none();
            for (std::size_t word = start; word < end; ++word) {
                count = Lanes::add_bits(
                    count, Lanes::differing(Lanes::load(group + word * Lanes::kWidth), Lanes::broadcast(query[word])));
            }
            distances = Lanes::add(distances, Lanes::total(count));
        }
        return distances;
    }
}

template <class Lanes, int kQueries, int kWords>
void nearest_of_block(const std::uint32_t* groups, std::size_t n_groups, std::size_t first_class,
                      std::size_t n_words, const std::uint32_t* queries, std::uint64_t* best) {
    using Register = typename Lanes::Register;
    Register smallest[kQueries];
    for (int q = 0; q < kQueries; ++q) smallest[q] = Lanes::broadcast(~std::uint32_t{0});
    Register step = Lanes::broadcast(0);
    for (std::size_t g = 0; g < n_groups; ++g) {
        const std::uint32_t* const group = groups + g * n_words * Lanes::kWidth;
#pragma GCC unroll 8
        for (int q = 0; q < kQueries; ++q) {
            const Register distances = distances_of<Lanes, kWords>(group, queries + q * n_words, n_words);
            smallest[q] = Lanes::smaller(smallest[q], Lanes::template key<kWords>(distances, step));
        }
        step = Lanes::add(step, Lanes::broadcast(1));
    }
    for (int q = 0; q < kQueries; ++q) {
        std::size_t lane = 0;
        const std::uint64_t key = Lanes::lowest(smallest[q], &lane);
        const std::uint64_t found = (key & (kMaxSteps - 1)) * Lanes::kWidth + lane + first_class;
        const std::uint64_t whole = (key >> kStepBits) << 32 | found;
        if (whole < best[q]) best[q] = whole;
    }
}

template <class Lanes, int kWords>
void nearest_with(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                  std::uint64_t* best) {
    constexpr int kTogether = 4;  // queries that share a load of classes; more were no faster
    const std::size_t n_words = kWords > 0 ? std::size_t(kWords) : classes.n_words;
    const std::size_t fitting = kWordsPerBlock / (n_words * Lanes::kWidth);
    const std::size_t groups_per_block = fitting < 1 ? 1 : fitting < kMaxSteps ? fitting : kMaxSteps;
    for (std::size_t start = 0; start < classes.n_groups; start += groups_per_block) {
        const std::size_t rest = classes.n_groups - start;
        const std::size_t n_groups = rest < groups_per_block ? rest : groups_per_block;
        const std::uint32_t* const groups = classes.words + start * n_words * Lanes::kWidth;
        std::size_t q = 0;
        for (; q + kTogether <= n_queries; q += kTogether) {
            nearest_of_block<Lanes, kTogether, kWords>(groups, n_groups, start * Lanes::kWidth, n_words,
                                                       queries + q * n_words, best + q);
        }
        for (; q < n_queries; ++q) {
            nearest_of_block<Lanes, 1, kWords>(groups, n_groups, start * Lanes::kWidth, n_words,
                                               queries + q * n_words, best + q);
        }
    }
}

// Scores are written in blocks of classes that stay in the first-level cache, query after query: each
// query writes a stretch of memory that follows its last.
template <class Lanes, int kWords>
void scores_with(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries, std::int32_t n_bits,
                 std::int32_t* scores) {
    constexpr std::size_t kWordsInCache = 1 << 12;
    const std::size_t n_words = kWords > 0 ? std::size_t(kWords) : classes.n_words;
    const std::size_t group_words = n_words * Lanes::kWidth;
    const std::size_t groups_per_block = group_words < kWordsInCache ? kWordsInCache / group_words : 1;
    const std::size_t whole_groups = classes.n_classes / Lanes::kWidth;
    for (std::size_t start = 0; start < classes.n_groups; start += groups_per_block) {
        const std::size_t end =
            classes.n_groups - start < groups_per_block ? classes.n_groups : start + groups_per_block;
        for (std::size_t q = 0; q < n_queries; ++q) {
            std::int32_t* const row = scores + q * classes.n_classes;
            for (std::size_t g = start; g < end; ++g) {
                const auto distances =
                    distances_of<Lanes, kWords>(classes.words + g * group_words, queries + q * n_words, n_words);
                const auto products = Lanes::product(distances, n_bits);
                if (g < whole_groups) {
                    Lanes::store(reinterpret_cast<std::uint32_t*>(row + g * Lanes::kWidth), products);
                } else {
                    std::uint32_t last[Lanes::kWidth];
                    Lanes::store(last, products);
                    std::memcpy(row + g * Lanes::kWidth, last,
                                (classes.n_classes - g * Lanes::kWidth) * sizeof(std::int32_t));
                }
            }
        }
    }
}

// How many of the distances are below a limit.
template <class Lanes>
std::size_t count_below(const std::uint32_t* distances, std::size_t n, std::uint32_t limit) {
    const auto limits = Lanes::broadcast(limit);
    std::size_t count = 0;
    std::size_t i = 0;
    for (; i + Lanes::kWidth <= n; i += Lanes::kWidth) {
        count += static_cast<std::size_t>(__builtin_popcount(Lanes::below(Lanes::load(distances + i), limits)));
    }
    const std::uint32_t rest = (1u << (n - i)) - 1;
    return count + static_cast<std::size_t>(__builtin_popcount(Lanes::below(Lanes::load(distances + i), limits) & rest));
}

// Drops all but the wanted candidates: the nearest, and of equals those of the lowest index.
template <class Lanes>
void keep_nearest(Candidates& candidates, std::size_t n_words) {
    const std::size_t n = candidates.size;
    const std::size_t wanted = candidates.wanted;
    if (n <= wanted) return;
    std::uint32_t* const distances = candidates.distances;
    // The largest value that fewer than `wanted` lie below is the distance of the last to keep. None is
    // above the threshold, and mostly it is one of the 16 values up to it.
    const std::uint32_t most_bits = 32 * static_cast<std::uint32_t>(n_words);
    const std::uint32_t most = candidates.threshold < most_bits ? candidates.threshold : most_bits;
    std::uint32_t last = most > 15 ? most - 15 : 0;
    std::size_t nearer_than_last = count_below<Lanes>(distances, n, last);
    std::uint32_t bit = 8;
    if (__builtin_expect(nearer_than_last >= wanted, 0)) {
        last = 0;
        nearer_than_last = 0;
        bit = 1u << (31 - __builtin_clz(most));
    }
    for (; bit != 0; bit >>= 1) {
        const std::size_t count = count_below<Lanes>(distances, n, last + bit);
        last += count < wanted ? bit : 0;
        nearer_than_last = count < wanted ? count : nearer_than_last;
    }
    std::size_t equals = wanted - nearer_than_last;  // how many of the distance of the last to keep
    std::size_t size = 0;
    for (std::size_t i = 0; i < n; i += Lanes::kWidth) {
        const std::size_t rest = n - i;
        const std::uint32_t valid = rest < Lanes::kWidth ? (1u << rest) - 1 : ~0u;
        const auto values = Lanes::load(distances + i);
        const auto classes = Lanes::load(candidates.classes + i);
        const std::uint32_t nearer = Lanes::below(values, Lanes::broadcast(last)) & valid;
        std::uint32_t equal = Lanes::below(values, Lanes::broadcast(last + 1)) & valid & ~nearer;
        const auto n_equal = static_cast<std::size_t>(__builtin_popcount(equal));
        if (n_equal <= equals) {
            equals -= n_equal;
        } else {
            std::uint32_t kept = 0;
            for (; equals > 0; --equals, equal &= equal - 1) kept |= equal & (0u - equal);
            equal = kept;
        }
        // The places that are written have been read.
        Lanes::compress(distances + size, values, nearer | equal);
        size += Lanes::compress(candidates.classes + size, classes, nearer | equal);
    }
    candidates.size = size;
    candidates.threshold = last;
}

// Distances of a block from one query to the next: off a power of two, for the sake of the cache.
constexpr std::size_t kRowLength = kClassesPerBlock + 3 * 64;

// Fills an empty list with the wanted of the first classes, of which at least so many, and few more, are
// below a limit.
template <class Lanes, class Narrow>
void take_nearest(const Narrow* distances, std::size_t n, Narrow limit, std::size_t n_words, Candidates& candidates) {
    alignas(64) Narrow near[kRowLength];
    std::uint8_t places[kRowLength];
    std::uint8_t steps[kRowLength];
    const auto place = [&](std::size_t i) { return std::uint32_t{steps[i]} * 64 + places[i]; };
    std::size_t size = 0;
    for (std::size_t i = 0; i < n; i += 64) {
        size += Lanes::collect_64(distances + i, Lanes::below_of_64(distances + i, limit), i / 64, near + size,
                                  places + size, steps + size);
    }
    if (__builtin_expect(size > 64, 0)) {
        for (std::size_t i = 0; i < size; ++i) {
            candidates.distances[i] = near[i];
            candidates.classes[i] = place(i);
        }
        candidates.size = size;
        candidates.threshold = limit;
        return keep_nearest<Lanes>(candidates, n_words);
    }
    for (int i = 0; i < 64; ++i) near[size + i] = std::numeric_limits<Narrow>::max();
    // The largest value that fewer than `wanted` lie below. Several are tried at once: looking is cheaper
    // than waiting for what the one before has found.
    const std::size_t wanted = candidates.wanted;
    auto last = static_cast<Narrow>(limit - 1);
    for (bool lower = true; lower;) {
        constexpr int kTries = 4;
        int lower_by = 0;
#pragma GCC unroll 4
        for (int t = 0; t < kTries; ++t) {
            const auto value = static_cast<Narrow>(last > Narrow(t) ? last - Narrow(t) : 0);
            lower_by += static_cast<std::size_t>(__builtin_popcountll(Lanes::below_of_64(near, value))) >= wanted;
        }
        last = static_cast<Narrow>(last - lower_by);
        lower = lower_by == kTries;
    }
    const std::uint64_t nearer = Lanes::below_of_64(near, last);
    const std::uint64_t equal = Lanes::below_of_64(near, static_cast<Narrow>(last + 1)) & ~nearer;
    std::uint64_t kept =
        nearer | Lanes::lowest_bits(equal, wanted - static_cast<std::size_t>(__builtin_popcountll(nearer)));
    for (std::size_t i = 0; i < wanted; ++i, kept &= kept - 1) {
        const auto at = static_cast<std::size_t>(__builtin_ctzll(kept));
        candidates.distances[i] = near[at];
        candidates.classes[i] = place(at);
    }
    candidates.size = wanted;
    candidates.threshold = last;
}

// Limits that at least `wanted` of the distances of each query are below, and few more: each of 64
// lanes has a smallest distance, and the limit is above the `wanted` smallest of these.
template <class Lanes, int kQueries, class Narrow>
void limits_from_lanes(const Narrow (*distances)[kRowLength], std::size_t n, std::size_t wanted,
                       std::size_t n_words, Narrow* limits) {
    alignas(64) Narrow smallest[kQueries][64];
    typedef Narrow Vector __attribute__((vector_size(64 * sizeof(Narrow))));
    for (int q = 0; q < kQueries; ++q) {
        Vector least, next;
        std::memcpy(&least, distances[q], sizeof(least));
        for (std::size_t i = 64; i < n; i += 64) {
            std::memcpy(&next, distances[q] + i, sizeof(next));
            least = next < least ? next : least;
        }
        std::memcpy(smallest[q], &least, sizeof(least));
        limits[q] = 0;
    }
    // Of all queries at once, so that none waits for the one before.
    for (auto bit = static_cast<Narrow>(1u << (31 - __builtin_clz(static_cast<unsigned>(32 * n_words)))); bit != 0;
         bit >>= 1) {
#pragma GCC unroll 4
        for (int q = 0; q < kQueries; ++q) {
            const auto larger = static_cast<Narrow>(limits[q] | bit);
            const int count = __builtin_popcountll(Lanes::below_of_64(smallest[q], larger));
            limits[q] = static_cast<std::size_t>(count) < wanted ? larger : limits[q];
        }
    }
    for (int q = 0; q < kQueries; ++q) ++limits[q];
}

// Queries as registers, which stay where they are whatever is written to memory meanwhile.
template <class Lanes, int kQueries, int kWords>
struct QueryRegisters {
    typename Lanes::Register words[kQueries][kWords > 0 ? kWords : 1];
    const std::uint32_t* queries;
    std::size_t n_words;

    QueryRegisters(const std::uint32_t* queries, std::size_t n_words) : queries(queries), n_words(n_words) {
        for (int q = 0; q < kQueries; ++q) {
            for (int word = 0; word < kWords; ++word) words[q][word] = Lanes::broadcast(queries[q * kWords + word]);
        }
    }
    typename Lanes::Register distances(const std::uint32_t* group, int q) const {
        if constexpr (kWords > 0) {
            typename Lanes::Count count = Lanes::none();
#pragma GCC unroll 16
            for (int word = 0; word < kWords; ++word) {
                count = Lanes::add_bits(count, Lanes::differing(Lanes::load(group + word * Lanes::kWidth), words[q][word]));
            }
            return Lanes::total(count);
        }
        return distances_of<Lanes, 0>(group, queries + q * n_words, n_words);
    }
};

// Adds the near classes of groups [begin, end), in two steps: distances in few bits, then those below
// a limit. A branch inside the first would cost far more than writing the distances down.
template <class Lanes, int kQueries, int kWords, class Narrow>
void collect_of_block(const ClassGroups& classes, std::size_t begin, std::size_t end, const std::uint32_t* queries,
                      Candidates* candidates) {
    const std::size_t n_words = kWords > 0 ? std::size_t(kWords) : classes.n_words;
    alignas(64) Narrow distances[kQueries][kRowLength];
    const QueryRegisters<Lanes, kQueries, kWords> registers(queries, n_words);
    constexpr std::size_t kGroups = 64 / Lanes::kWidth;
    for (std::size_t g = begin; g < end; g += kGroups) {
        const std::uint32_t* const groups = classes.words + g * n_words * Lanes::kWidth;
        constexpr int kShared = kQueries < 2 ? kQueries : 2;  // queries that share a load of classes
#pragma GCC unroll 4
        for (int q = 0; q < kQueries; q += kShared) {
            typename Lanes::Register of_groups[kShared][kGroups];
#pragma GCC unroll 16
            for (std::size_t i = 0; i < kGroups; ++i) {
#pragma GCC unroll 2
                for (int s = 0; s < kShared; ++s) {
                    of_groups[s][i] = registers.distances(groups + i * n_words * Lanes::kWidth, q + s);
                }
            }
            for (int s = 0; s < kShared; ++s) {
                Lanes::narrow_64(distances[q + s] + (g - begin) * Lanes::kWidth, of_groups[s]);
            }
        }
    }
    const std::size_t first_class = begin * Lanes::kWidth;
    const std::size_t last_class = end * Lanes::kWidth < classes.n_classes ? end * Lanes::kWidth : classes.n_classes;
    const std::size_t n = last_class - first_class;
    const std::size_t n_padded = (n + 63) / 64 * 64;
    constexpr Narrow kNone = std::numeric_limits<Narrow>::max();  // more than any distance
    const std::size_t wanted = candidates[0].wanted;
    Narrow limits[kQueries];
    for (int q = 0; q < kQueries; ++q) {
        for (std::size_t i = n; i < n_padded; ++i) distances[q][i] = kNone;
        limits[q] = candidates[q].threshold < kNone ? static_cast<Narrow>(candidates[q].threshold) : kNone;
    }
    const bool is_first = candidates[0].threshold == ~std::uint32_t{0};  // nothing is known to be near
    if (is_first && wanted <= 64 && wanted <= n) {
        limits_from_lanes<Lanes, kQueries>(distances, n_padded, wanted, n_words, limits);
        for (int q = 0; q < kQueries; ++q) {
            take_nearest<Lanes>(distances[q], n_padded, limits[q], n_words, candidates[q]);
        }
        return;
    }
    for (int q = 0; q < kQueries; ++q) {
        Candidates& mine = candidates[q];
        std::size_t size = mine.size;
        const auto add = [&](std::size_t i, std::uint64_t mask) {
            const std::size_t at = i + static_cast<std::size_t>(__builtin_ctzll(mask));
            mine.distances[size] = distances[q][at];
            mine.classes[size] = static_cast<std::uint32_t>(first_class + at);
        };
        for (std::size_t i = 0; i < n_padded; i += 64) {
            std::uint64_t mask = Lanes::below_of_64(distances[q] + i, limits[q]);
            for (; __builtin_expect(mask != 0, 0); mask &= mask - 1, ++size) add(i, mask);
        }
        mine.size = size;
        if (end == classes.n_groups || size > wanted + wanted / 2) keep_nearest<Lanes>(mine, n_words);
    }
}

// Block after block of classes, which stays in the second-level cache while all queries pass over it.
template <class Lanes, int kWords, class Narrow>
void collect_with(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
                  Candidates* candidates) {
    constexpr int kTogether = 4;
    constexpr std::size_t kGroups = kClassesPerBlock / Lanes::kWidth;
    for (std::size_t begin = 0; begin < classes.n_groups; begin += kGroups) {
        const std::size_t end = classes.n_groups - begin < kGroups ? classes.n_groups : begin + kGroups;
        const std::uint32_t* query = queries;
        std::size_t q = 0;
        for (; q + kTogether <= n_queries; q += kTogether, query += kTogether * classes.n_words) {
            collect_of_block<Lanes, kTogether, kWords, Narrow>(classes, begin, end, query, candidates + q);
        }
        for (; q < n_queries; ++q, query += classes.n_words) {
            collect_of_block<Lanes, 1, kWords, Narrow>(classes, begin, end, query, candidates + q);
        }
    }
}

template <class Lanes>
void rescore(const ClassGroups& classes, const Candidates& candidates, const std::int8_t* activations,
             std::int32_t* scores) {
    const std::size_t length = (classes.n_words + 1) / 2;
    for (std::size_t start = 0; start < candidates.size; start += 16) {
        const std::uint64_t* rows[16];
        for (std::size_t i = 0; i < 16; ++i) {
            const std::size_t at = start + i < candidates.size ? start + i : start;
            rows[i] = classes.rows + candidates.classes[at] * length;
        }
        Lanes::products(rows, length, activations, scores + start);
    }
}

// The usual code lengths, up to 512 bits, have loops of their own, fully unrolled.
template <class Lanes>
void nearest(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries, std::uint64_t* best) {
    switch (classes.n_words) {
        case 1: return nearest_with<Lanes, 1>(classes, queries, n_queries, best);
        case 2: return nearest_with<Lanes, 2>(classes, queries, n_queries, best);
        case 3: return nearest_with<Lanes, 3>(classes, queries, n_queries, best);
        case 4: return nearest_with<Lanes, 4>(classes, queries, n_queries, best);
        case 6: return nearest_with<Lanes, 6>(classes, queries, n_queries, best);
        case 8: return nearest_with<Lanes, 8>(classes, queries, n_queries, best);
        case 16: return nearest_with<Lanes, 16>(classes, queries, n_queries, best);
        default: return nearest_with<Lanes, 0>(classes, queries, n_queries, best);
    }
}

template <class Lanes>
void scores(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries, std::int32_t n_bits,
            std::int32_t* scores) {
    switch (classes.n_words) {
        case 2: return scores_with<Lanes, 2>(classes, queries, n_queries, n_bits, scores);
        case 4: return scores_with<Lanes, 4>(classes, queries, n_queries, n_bits, scores);
        case 8: return scores_with<Lanes, 8>(classes, queries, n_queries, n_bits, scores);
        default: return scores_with<Lanes, 0>(classes, queries, n_queries, n_bits, scores);
    }
}

template <class Lanes>
void collect(const ClassGroups& classes, const std::uint32_t* queries, std::size_t n_queries,
             Candidates* candidates) {
    switch (classes.n_words) {
        case 2: return collect_with<Lanes, 2, std::uint8_t>(classes, queries, n_queries, candidates);
        case 4: return collect_with<Lanes, 4, std::uint8_t>(classes, queries, n_queries, candidates);
        case 8: return collect_with<Lanes, 8, std::uint16_t>(classes, queries, n_queries, candidates);
        default: break;
    }
    if (classes.n_words <= 7) return collect_with<Lanes, 0, std::uint8_t>(classes, queries, n_queries, candidates);
    if (classes.n_words <= 2047) return collect_with<Lanes, 0, std::uint16_t>(classes, queries, n_queries, candidates);
    return collect_with<Lanes, 0, std::uint32_t>(classes, queries, n_queries, candidates);
}

}  // namespace
