// Features to codes: signs of scores, and products of eight-bit integers.
//
// A few rows at a time are quantised into scratch memory that stays in the cache, then multiplied by the panels of the
// projection, in tiles of rows and columns whose sums stay in registers over all features.
//
// The `Tile` of a level provides
//   Row, Weight         element types of quantised rows and of the panels
//   kRowOffset          offset added to quantised values so that they fit Row
//   kRows               rows of a tile
//   kColumns            columns of a panel, a multiple of 8; the last panel may have fewer,
//   kMinColumns         in steps of this, also a multiple of 8
//   kStep               features quantised together; rows are padded to a multiple of it
//   kTogether           features whose products `add_products` adds up, for the columns of a register; 0 if
//                       `multiply` works column by column
//   quantise            rounds kStep scaled entries to the nearest integers, ties to even
//   sign_bits           mask of the sums, of 8, that reach their threshold

// -- The real-valued code of a row: tanh(P'x + t) per bit, as integers from -127 to 127. Every operation
// is defined by IEEE 754 and performed in a fixed order, so all levels agree to the last bit.

constexpr std::size_t kActivationsPerStep = 64;

inline float clamped(float x) {
    x = x < 4.0f ? x : 4.0f;
    return x > -4.0f ? x : -4.0f;
}

// 127 times a rational approximation of tanh, within 0.3, for x from -4 to 4; at 4 it just exceeds 127.
inline std::int8_t activation(float x) {
    const float square = x * x;
    const float numerator = x * ((127.0f * square + 13335.0f) * square + 120015.0f);
    const float denominator = (15.0f * square + 420.0f) * square + 945.0f;
    // Floats of this magnitude are integers: adding it rounds to the nearest, ties to even, and leaves the
    // integer in the low bits.
    const float rounded = numerator / denominator + 0x1.8p23f;
    std::int32_t bits;
    std::memcpy(&bits, &rounded, sizeof(bits));
    return static_cast<std::int8_t>(bits);
}

// Activations from the integer sums of a row whose entries were multiplied by a factor. Not inlined: its constants
// would occupy registers of the preceding product.
__attribute__((noinline)) void activate_sums(const std::int32_t* __restrict__ sums, std::size_t n,
                                             const float* __restrict__ steps, const float* __restrict__ intercept,
                                             float inverse_factor, std::int8_t* __restrict__ activations) {
    // Clamped in a separate loop: otherwise compilers evaluate the limits ahead and branch on them.
    float values[kActivationsPerStep];
    for (std::size_t start = 0; start < n; start += kActivationsPerStep) {
        const std::size_t count = n - start < kActivationsPerStep ? n - start : kActivationsPerStep;
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t at = start + k;
            values[k] = clamped(static_cast<float>(sums[at]) * (steps[at] * inverse_factor) + intercept[at]);
        }
        for (std::size_t k = 0; k < count; ++k) activations[start + k] = activation(values[k]);
    }
}

// Activations from the scores of n rows, written `stride` bytes apart.
void activate(const float* __restrict__ scores, std::size_t n, std::size_t n_bits, const float* __restrict__ intercept,
              std::int8_t* __restrict__ activations, std::size_t stride) {
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < n_bits; ++k) {
            activations[i * stride + k] = activation(clamped(scores[i * n_bits + k] + intercept[k]));
        }
        for (std::size_t k = n_bits; k < stride; ++k) activations[i * stride + k] = 0;
    }
}

// -- Packing of scores

// Whether all scores plus intercepts are finite.
bool all_finite(const float* scores, std::size_t n, const float* intercept) {
    constexpr std::int32_t kMagnitude = std::numeric_limits<std::int32_t>::max();  // all but the sign
    constexpr std::int32_t kInfinity = 0x7f800000;
    std::int32_t largest = 0;
    for (std::size_t k = 0; k < n; ++k) {
        const float score = scores[k] + intercept[k];
        std::int32_t bits;
        std::memcpy(&bits, &score, sizeof(bits));
        bits &= kMagnitude;
        largest = bits > largest ? bits : largest;
    }
    return largest < kInfinity;
}

std::size_t pack(const float* scores, std::size_t n, std::size_t n_bits, const float* intercept, std::uint8_t* codes) {
    const std::size_t whole = n_bits / 8;
    std::size_t first_bad = n;
    for (std::size_t i = 0; i < n; ++i, scores += n_bits) {
        if (first_bad == n && !all_finite(scores, n_bits, intercept)) first_bad = i;
        for (std::size_t byte = 0; byte < whole; ++byte) {
            *codes++ = bits_of_8(scores + 8 * byte, intercept + 8 * byte);
        }
        if (n_bits % 8 != 0) *codes++ = reached(scores + 8 * whole, intercept + 8 * whole, 1.0f, n_bits % 8);
    }
    return first_bad;
}

// -- Eight-bit integers

// Memory to prefetch line by line while tiles are multiplied: the rows to quantise next.
struct Upcoming {
    std::uintptr_t at;
    std::uintptr_t end;

    void fetch_line() {
        __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);  // into the second-level cache
        at = at + 64 < end ? at + 64 : end;
    }
};

// n, rounded up to a multiple of a step.
constexpr std::size_t padded(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

std::size_t columns_of_panel(std::size_t first, std::size_t n_columns) {
    return n_columns - first < Tile::kColumns ? n_columns - first : Tile::kColumns;
}

// Index of a weight in its panel.
inline std::size_t place(std::size_t feature, std::size_t column, std::size_t n_columns, std::size_t n_padded) {
    if constexpr (Tile::kTogether == 0) return column * n_padded + feature;
    constexpr std::size_t kTogether = Tile::kTogether > 0 ? Tile::kTogether : 1;
    return (feature / kTogether * n_columns + column) * kTogether + feature % kTogether;
}

void lay_out(const std::int8_t* weights, std::size_t n_features, std::size_t n_bits, void* memory) {
    const std::size_t n_padded = padded(n_features, Tile::kStep);
    const std::size_t n_columns = padded(n_bits, Tile::kMinColumns);
    for (std::size_t first = 0; first < n_bits; first += Tile::kColumns) {
        const std::size_t columns = columns_of_panel(first, n_columns);
        auto* const panel = static_cast<Tile::Weight*>(memory) + first * n_padded;
        for (std::size_t j = 0; j < n_features; ++j) {
            for (std::size_t c = 0; c < columns && first + c < n_bits; ++c) {
                panel[place(j, c, columns, n_padded)] = weights[j * n_bits + first + c];
            }
        }
    }
}

// Rows quantised at a time: few, so that the second-level cache is left to the panels.
constexpr std::size_t kRoomRows = 12;

// The memory of the next rows; empty unless rows are contiguous.
template <class Source>
Upcoming rows_of(const Features& features, std::size_t first, std::size_t count) {
    const auto row_bytes = static_cast<std::ptrdiff_t>(features.n_features * sizeof(Source));
    const auto data = reinterpret_cast<std::uintptr_t>(features.data);
    if (features.row_stride != row_bytes) return {data, data};
    const std::size_t end = first + count < features.n_rows ? first + count : features.n_rows;
    return {data + first * features.row_stride, data + end * features.row_stride};
}

// Calls visit(from, to) for ranges of features whose centres and scales stay in the first-level cache
// while several rows are processed.
template <class Visit>
void by_stretches(std::size_t n, Visit visit) {
    constexpr std::size_t kStretch = 1024;
    static_assert(kStretch % Tile::kStep == 0, "ranges are whole steps");
    for (std::size_t from = 0; from < n; from += kStretch) visit(from, n - from < kStretch ? n : from + kStretch);
}

// Number of vectors that are quantised together.
constexpr std::size_t kEntryParts = Tile::kStep / kFloats;

// One vector of the features from j on, which are at x; centre and inverse_scale are null unless rows are standardised.
template <bool kStandardise, class Source>
inline Floats entries(const Source* x, const float* centre, const float* inverse_scale, std::size_t j,
                      std::size_t part) {
    const Floats values = floats_of(x + part * kFloats);
    if constexpr (!kStandardise) return values;
    const std::size_t at = j + part * kFloats;
    return (values - load<Floats>(centre + at)) * load<Floats>(inverse_scale + at);
}

// Largest magnitude. Magnitudes are compared by their bits as integers, so infinity exceeds every number, and NaN
// exceeds infinity.
struct Largest {
    Integers of[kEntryParts] = {};  // several, to hide the latency of a comparison

    template <bool kStandardise, class Source>
    void see(const Source* x, const float* centre, const float* inverse_scale, std::size_t j) {
        for (std::size_t part = 0; part < kEntryParts; ++part) {
            const auto entry = (Integers)entries<kStandardise>(x, centre, inverse_scale, j, part) & kMagnitudeBits;
            of[part] = entry > of[part] ? entry : of[part];
        }
    }
    float value() const {
        Integers most = of[0];
        for (std::size_t part = 1; part < kEntryParts; ++part) most = of[part] > most ? of[part] : most;
        std::int32_t of_lane[kVectorBytes / 4], largest = 0;
        std::memcpy(of_lane, &most, sizeof of_lane);
        for (const std::int32_t magnitude : of_lane) largest = magnitude > largest ? magnitude : largest;
        return load<float>(&largest);
    }
};

template <bool kStandardise, class Source>
inline void quantise(const Source* x, const float* centre, const float* inverse_scale, std::size_t j, float factor,
                     Tile::Row* quantised) {
    Floats scaled[kEntryParts];
    for (std::size_t part = 0; part < kEntryParts; ++part) {
        scaled[part] = entries<kStandardise>(x, centre, inverse_scale, j, part) * factor;
    }
    Tile::quantise(scaled, quantised);
}

// The same for n entries, clipped. Not inlined: it is rare, and would slow the other loop.
template <class Source>
__attribute__((noinline)) void quantise_clipped(const Source* x, const float* centre, const float* inverse_scale,
                                                std::size_t n, Tile::Row* quantised) {
    const Floats most = Floats{} + kMaxDeviations;
    for (std::size_t j = 0; j < n; j += Tile::kStep) {
        Floats scaled[kEntryParts];
        for (std::size_t part = 0; part < kEntryParts; ++part) {
            Floats entry = entries<true>(x + j, centre, inverse_scale, j, part);
            entry = entry < most ? entry : most;
            entry = entry > -most ? entry : -most;
            scaled[part] = entry * (kQuantisedMax / kMaxDeviations);
        }
        Tile::quantise(scaled, quantised + j);
    }
}

// Quantises rows, and sets the factors by which their entries were multiplied. Returns the first row that
// is not finite, or count.
template <bool kStandardise, std::size_t kMaxRows, class Source>
std::size_t quantise_rows(const Int8Panels& panels, const Features& features, std::size_t first, std::size_t count,
                          Tile::Row* quantised, float* factors) {
    const std::size_t whole = panels.n_features / Tile::kStep * Tile::kStep;
    const std::size_t rest = panels.n_features - whole;
    const float* const centre = panels.centre;
    const float* const inverse_scale = panels.inverse_scale;
    const Source* x[kMaxRows];
    Source last[kMaxRows][Tile::kStep] = {};  // the remainder past a multiple of kStep, padded with zeros
    Largest largest[kMaxRows];
    for (std::size_t i = 0; i < count; ++i) {
        x[i] = static_cast<const Source*>(features.row(first + i));
        for (std::size_t j = 0; j < rest; ++j) last[i][j] = x[i][whole + j];
    }
    std::size_t first_bad = count;
    bool clip[kMaxRows] = {};

    by_stretches(whole, [&](std::size_t from, std::size_t to) {
        for (std::size_t i = 0; i < count; ++i) {
            Largest so_far = largest[i];
            for (std::size_t j = from; j < to; j += Tile::kStep) {
                so_far.template see<kStandardise>(x[i] + j, centre, inverse_scale, j);
            }
            largest[i] = so_far;
        }
    });
    for (std::size_t i = 0; i < count; ++i) {
        if (rest > 0) largest[i].template see<kStandardise>(last[i], centre, inverse_scale, whole);
        const float most = largest[i].value();
        clip[i] = kStandardise && most > kMaxDeviations;
        const float limit = clip[i] ? kMaxDeviations : most;
        factors[i] = most >= kMinEntry && most <= kMaxEntry ? kQuantisedMax / limit : 0.0f;
        if (!(most <= kMaxEntry) && first_bad == count) first_bad = i;
    }

    by_stretches(whole, [&](std::size_t from, std::size_t to) {
        for (std::size_t i = 0; i < count; ++i) {
            Tile::Row* const row = quantised + i * panels.n_padded;
            if (kStandardise && clip[i]) {
                quantise_clipped(x[i] + from, centre + from, inverse_scale + from, to - from, row + from);
                continue;
            }
            for (std::size_t j = from; j < to; j += Tile::kStep) {
                quantise<kStandardise>(x[i] + j, centre, inverse_scale, j, factors[i], row + j);
            }
        }
    });
    for (std::size_t i = 0; i < count; ++i) {
        Tile::Row* const row = quantised + i * panels.n_padded;
        if (rest > 0 && kStandardise && clip[i]) {
            quantise_clipped(last[i], centre + whole, inverse_scale + whole, rest, row + whole);
        } else if (rest > 0) {
            quantise<kStandardise>(last[i], centre, inverse_scale, whole, factors[i], row + whole);
        }
        if (factors[i] == 0.0f) {
            for (std::size_t j = 0; j < panels.n_padded; ++j) row[j] = Tile::kRowOffset;
            factors[i] = 1.0f;
        }
    }
    return first_bad;
}

// Products of kRows rows and kRegisters registers of columns, whose sums stay in registers over all features. TileType
// is Tile, as a template parameter, so that a function that a level's Tile lacks is not looked up.
template <class TileType, std::size_t kRows, std::size_t kRegisters>
void multiply_registers(const Tile::Row* rows, std::size_t n_padded, const Tile::Weight* panel,
                        const std::int32_t* starts, std::int32_t* sums, Upcoming& upcoming) {
    constexpr std::size_t kSums = kVectorBytes / sizeof(std::int32_t);
    constexpr std::size_t kWeights = kVectorBytes / sizeof(Tile::Weight);
    Integers sum[kRows][kRegisters];
    for (std::size_t i = 0; i < kRows; ++i) {
        for (std::size_t c = 0; c < kRegisters; ++c) sum[i][c] = load<Integers>(starts + kSums * c);
    }
    Upcoming fetch = upcoming;  // a copy, which can stay in registers
    for (std::size_t j = 0; j < n_padded; j += Tile::kTogether) {
        Integers weights[kRegisters];
#pragma GCC unroll 4
        for (std::size_t c = 0; c < kRegisters; ++c) weights[c] = load<Integers>(panel + kWeights * c);
#pragma GCC unroll 6
        for (std::size_t i = 0; i < kRows; ++i) {
            const Integers features = Integers{} + load<std::int32_t>(rows + i * n_padded + j);
#pragma GCC unroll 4
            for (std::size_t c = 0; c < kRegisters; ++c) {
                sum[i][c] = TileType::add_products(sum[i][c], features, weights[c]);
            }
        }
        panel += kWeights * kRegisters;
        fetch.fetch_line();
    }
    upcoming = fetch;
    for (std::size_t i = 0; i < kRows; ++i) {
        for (std::size_t c = 0; c < kRegisters; ++c) store(sums + kSums * (i * kRegisters + c), sum[i][c]);
    }
}

template <class TileType, std::size_t kRows, std::size_t kRegisters = Tile::kColumns / Tile::kMinColumns>
void multiply(const Tile::Row* rows, std::size_t n_padded, const Tile::Weight* panel, std::size_t columns,
              const std::int32_t* starts, std::int32_t* sums, Upcoming& upcoming) {
    if constexpr (Tile::kTogether == 0) {
        TileType::multiply(rows, n_padded, panel, columns, starts, sums);
    } else if constexpr (kRegisters > 0) {
        if (columns != kRegisters * Tile::kMinColumns) {
            return multiply<TileType, kRows, kRegisters - 1>(rows, n_padded, panel, columns, starts, sums, upcoming);
        }
        multiply_registers<TileType, kRows, kRegisters>(rows, n_padded, panel, starts, sums, upcoming);
    }
}

template <std::size_t kRows>
void encode_tile(const Int8Panels& panels, const Tile::Row* rows, const float* factors, std::uint8_t* codes,
                 const Int8Activations& activations, std::int8_t* active, Upcoming& upcoming) {
    const std::size_t n_columns = padded(panels.n_bits, Tile::kMinColumns);
    const std::size_t width = (panels.n_bits + 7) / 8;
    const auto* const weights = static_cast<const Tile::Weight*>(panels.weights);
    for (std::size_t first = 0; first < n_columns; first += Tile::kColumns) {
        const std::size_t columns = columns_of_panel(first, n_columns);
        alignas(64) std::int32_t sums[kRows * Tile::kColumns];
        multiply<Tile, kRows>(rows, panels.n_padded, weights + first * panels.n_padded, columns, panels.starts + first,
                              sums, upcoming);
        for (std::size_t i = 0; i < kRows; ++i) {
            for (std::size_t c = 0; c < columns && (first + c) / 8 < width; c += 8) {
                codes[i * width + (first + c) / 8] =
                    Tile::sign_bits(sums + i * columns + c, panels.thresholds + first + c, factors[i]);
            }
            if (active != nullptr) {
                const std::size_t rest = activations.stride - first;
                activate_sums(sums + i * columns, columns < rest ? columns : rest, activations.steps + first,
                              activations.intercept + first, 1.0f / factors[i],
                              active + i * activations.stride + first);
            }
        }
    }
}

template <bool kStandardise, class Source>
std::size_t encode_rows(const Int8Panels& panels, const Features& features, std::size_t start, std::size_t n,
                        void* room, std::uint8_t* codes, const Int8Activations& activations) {
    auto* const rows = static_cast<Tile::Row*>(room);
    const std::size_t width = (panels.n_bits + 7) / 8;
    float factors[kRoomRows];
    const auto active = [&](std::size_t i) {
        return activations.out == nullptr ? nullptr : activations.out + i * activations.stride;
    };
    std::size_t first_bad = n;
    for (std::size_t block = 0; block < n; block += kRoomRows) {
        const std::size_t count = n - block < kRoomRows ? n - block : kRoomRows;
        // Without centres and scales to share, a row is best quantised alone, while it is in the first-level cache.
        constexpr std::size_t kTogether = kStandardise ? 6 : 1;
        for (std::size_t i = 0; i < count; i += kTogether) {
            const std::size_t together = count - i < kTogether ? count - i : kTogether;
            const std::size_t bad = quantise_rows<kStandardise, kTogether, Source>(
                panels, features, start + block + i, together, rows + i * panels.n_padded, factors + i);
            if (bad < together && first_bad == n) first_bad = block + i + bad;
        }
        Upcoming upcoming = rows_of<Source>(features, start + block + count, kRoomRows);
        std::size_t i = 0;
        for (; i + Tile::kRows <= count; i += Tile::kRows) {
            encode_tile<Tile::kRows>(panels, rows + i * panels.n_padded, factors + i, codes + (block + i) * width,
                                     activations, active(block + i), upcoming);
        }
        for (; i < count; ++i) {
            encode_tile<1>(panels, rows + i * panels.n_padded, factors + i, codes + (block + i) * width, activations,
                           active(block + i), upcoming);
        }
    }
    return first_bad;
}

template <class Source>
std::size_t encode_rows_of(const Int8Panels& panels, const Features& features, std::size_t start, std::size_t n,
                           void* room, std::uint8_t* codes, const Int8Activations& activations) {
    if (panels.centre == nullptr) {
        return encode_rows<false, Source>(panels, features, start, n, room, codes, activations);
    }
    return encode_rows<true, Source>(panels, features, start, n, room, codes, activations);
}

std::size_t encode_features(const Int8Panels& panels, const Features& features, std::size_t start, std::size_t n,
                            void* room, std::uint8_t* codes, const Int8Activations& activations) {
    switch (features.type) {
        case Features::Type::float16: return encode_rows_of<Half>(panels, features, start, n, room, codes, activations);
        case Features::Type::float32:
            return encode_rows_of<float>(panels, features, start, n, room, codes, activations);
        case Features::Type::float64:
            return encode_rows_of<double>(panels, features, start, n, room, codes, activations);
    }
    return n;
}

constexpr EncodeKernels kEncodeKernels = {
    &pack,
    &activate,
    Tile::kStep,
    Tile::kMinColumns,
    sizeof(Tile::Weight),
    Tile::kRowOffset,
    kRoomRows * sizeof(Tile::Row),
    &lay_out,
    &encode_features,
};
