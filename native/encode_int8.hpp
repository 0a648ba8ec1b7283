// Encoding with eight-bit integers, written once for all SIMD levels.
//
// A level's file defines `Tile` and includes this file inside its namespace; everything here has
// internal linkage (see search_scan.hpp). Rows are quantised a few at a time into a room that stays
// in the cache, then multiplied with the panels of the projection, a tile of rows and columns at a
// time whose sums stay in registers over all features.
//
// `Tile` offers
//   Row, Weight         element types of quantised rows and of the panels
//   kRowOffset          what is added to quantised values to make them fit Row
//   kRows               rows of a tile
//   kColumns            columns of a panel, a multiple of 8; the last panel may have fewer,
//   kMinColumns       in steps of this, also a multiple of 8
//   kStep               features quantised together; rows are padded to a multiple of it
//   place               index of a weight in its panel
//   multiply            the sums of kRows rows, or of one, with a panel; may fetch what comes next
//   largest, quantise   over kStep features
//   value               the bits of the largest magnitude; magnitudes are compared as the integers their
//                       bits are, where infinity exceeds every number and NaN infinity
//   sign_bits           which of 8 sums reach their threshold

namespace {

// Memory that is fetched while tiles are multiplied, line by line: the rows to quantise next.
struct Upcoming {
    std::uintptr_t at;
    std::uintptr_t end;

    void fetch_line() {
        __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);  // into the second-level cache
        at = at + 64 < end ? at + 64 : end;
    }
};

// A row whose largest entry is smaller is encoded as zeros, and so is one that is not finite.
constexpr float kMinEntry = 1e-30f;
constexpr float kMaxEntry = 3.4028234e38f;
constexpr float kQuantisedMost = 127.0f;
constexpr std::int32_t kMagnitudeBits = 0x7fffffff;  // of a float: all but its sign

template <class Tile>
std::size_t padded_features(std::size_t n) {
    return (n + Tile::kStep - 1) / Tile::kStep * Tile::kStep;
}

template <class Tile>
std::size_t padded_columns(std::size_t n) {
    return (n + Tile::kMinColumns - 1) / Tile::kMinColumns * Tile::kMinColumns;
}

template <class Tile>
std::size_t columns_of_panel(std::size_t first, std::size_t n_columns) {
    return n_columns - first < Tile::kColumns ? n_columns - first : Tile::kColumns;
}

template <class Tile>
void lay_out(const std::int8_t* weights, std::size_t n_features, std::size_t n_bits, void* memory) {
    const std::size_t n_padded = padded_features<Tile>(n_features);
    const std::size_t n_columns = padded_columns<Tile>(n_bits);
    for (std::size_t first = 0; first < n_bits; first += Tile::kColumns) {
        const std::size_t columns = columns_of_panel<Tile>(first, n_columns);
        auto* const panel = static_cast<typename Tile::Weight*>(memory) + first * n_padded;
        for (std::size_t j = 0; j < n_features; ++j) {
            for (std::size_t c = 0; c < columns && first + c < n_bits; ++c) {
                panel[Tile::place(j, c, columns, n_padded)] = weights[j * n_bits + first + c];
            }
        }
    }
}

// Rows quantised at a time: few, so that the room leaves the second-level cache to the panels.
constexpr std::size_t kRoomRows = 12;

template <class Tile>
std::size_t room(const Int8Panels& panels) {
    return kRoomRows * panels.n_padded * sizeof(typename Tile::Row);
}

// Where rows lie, as far as there are any; no line of rows that do not follow each other is fetched.
template <class Source>
Upcoming rows_of(const Features& features, std::size_t first, std::size_t count) {
    const auto row_bytes = static_cast<std::ptrdiff_t>(features.n_features * sizeof(Source));
    const auto data = reinterpret_cast<std::uintptr_t>(features.data);
    if (features.row_stride != row_bytes) return {data, data};
    const std::size_t end = first + count < features.n_rows ? first + count : features.n_rows;
    return {data + first * features.row_stride, data + end * features.row_stride};
}

// A place in an array that is null where rows are not standardised.
template <bool kStandardise>
const float* at(const float* values, std::size_t j) {
    return kStandardise ? values + j : nullptr;
}

// Calls visit(from, to) for stretches of features whose centres and scales stay in the first-level
// cache while several rows pass over them.
template <class Tile, class Visit>
void by_stretches(std::size_t n, Visit visit) {
    constexpr std::size_t kStretch = 1024;
    static_assert(kStretch % Tile::kStep == 0, "stretches are whole steps");
    for (std::size_t from = 0; from < n; from += kStretch) visit(from, n - from < kStretch ? n : from + kStretch);
}

// Quantises rows and sets the factors from their entries to the integers. Returns the first row that
// is not finite, or count.
template <class Tile, bool kStandardise, std::size_t kMaxRows, class Source>
std::size_t quantise_rows(const Int8Panels& panels, const Features& features, std::size_t first, std::size_t count,
                   typename Tile::Row* quantised, float* factors) {
    const std::size_t whole = panels.n_features / Tile::kStep * Tile::kStep;
    const std::size_t rest = panels.n_features - whole;
    const float* const centre = panels.centre;
    const float* const inverse_scale = panels.inverse_scale;
    const Source* x[kMaxRows];
    Source last[kMaxRows][Tile::kStep] = {};  // what is left over a multiple of kStep, with zeros
    typename Tile::Largest largest[kMaxRows];
    for (std::size_t i = 0; i < count; ++i) {
        x[i] = static_cast<const Source*>(features.row(first + i));
        for (std::size_t j = 0; j < rest; ++j) last[i][j] = x[i][whole + j];
        largest[i] = Tile::none();
    }
    std::size_t first_bad = count;

    by_stretches<Tile>(whole, [&](std::size_t from, std::size_t to) {
        for (std::size_t i = 0; i < count; ++i) {
            typename Tile::Largest so_far = largest[i];
            for (std::size_t j = from; j < to; j += Tile::kStep) {
                so_far = Tile::template largest<kStandardise>(so_far, x[i] + j, at<kStandardise>(centre, j),
                                                              at<kStandardise>(inverse_scale, j));
            }
            largest[i] = so_far;
        }
    });
    for (std::size_t i = 0; i < count; ++i) {
        if (rest > 0) {
            largest[i] = Tile::template largest<kStandardise>(largest[i], last[i], at<kStandardise>(centre, whole),
                                                              at<kStandardise>(inverse_scale, whole));
        }
        const std::uint32_t magnitude = Tile::value(largest[i]);
        float most;
        std::memcpy(&most, &magnitude, sizeof(most));
        factors[i] = most >= kMinEntry && most <= kMaxEntry ? kQuantisedMost / most : 0.0f;
        if (!(most <= kMaxEntry) && first_bad == count) first_bad = i;
    }

    by_stretches<Tile>(whole, [&](std::size_t from, std::size_t to) {
        for (std::size_t i = 0; i < count; ++i) {
            typename Tile::Row* const row = quantised + i * panels.n_padded;
            for (std::size_t j = from; j < to; j += Tile::kStep) {
                Tile::template quantise<kStandardise>(x[i] + j, at<kStandardise>(centre, j),
                                                      at<kStandardise>(inverse_scale, j), factors[i], row + j);
            }
        }
    });
    for (std::size_t i = 0; i < count; ++i) {
        typename Tile::Row* const row = quantised + i * panels.n_padded;
        if (rest > 0) {
            Tile::template quantise<kStandardise>(last[i], at<kStandardise>(centre, whole),
                                                  at<kStandardise>(inverse_scale, whole), factors[i], row + whole);
        }
        if (factors[i] == 0.0f) {
            for (std::size_t j = 0; j < panels.n_padded; ++j) row[j] = Tile::kRowOffset;
            factors[i] = 1.0f;
        }
    }
    return first_bad;
}

template <class Tile, std::size_t kRows>
void encode_tile(const Int8Panels& panels, const typename Tile::Row* rows, const float* factors,
                 std::uint8_t* codes, const Int8Activations& activations, std::int8_t* active,
                 Upcoming& upcoming) {
    const std::size_t n_columns = padded_columns<Tile>(panels.n_bits);
    const std::size_t width = (panels.n_bits + 7) / 8;
    const auto* const weights = static_cast<const typename Tile::Weight*>(panels.weights);
    for (std::size_t first = 0; first < n_columns; first += Tile::kColumns) {
        const std::size_t columns = columns_of_panel<Tile>(first, n_columns);
        alignas(64) std::int32_t sums[kRows * Tile::kColumns];
        Tile::template multiply<kRows>(rows, panels.n_padded, weights + first * panels.n_padded, columns,
                                       panels.starts + first, sums, upcoming);
        for (std::size_t i = 0; i < kRows; ++i) {
            for (std::size_t c = 0; c < columns && (first + c) / 8 < width; c += 8) {
                codes[i * width + (first + c) / 8] =
                    Tile::sign_bits(sums + i * columns + c, panels.thresholds + first + c, factors[i]);
            }
            if (active != nullptr) {
                const std::size_t rest = activations.stride - first;
                activate_sums(sums + i * columns, columns < rest ? columns : rest, activations.steps + first,
                              activations.intercept + first, 1.0f / factors[i], active + i * activations.stride + first);
            }
        }
    }
}

template <class Tile, bool kStandardise, class Source>
std::size_t encode_rows(const Int8Panels& panels, const Features& features, std::size_t start, std::size_t n, void* room,
                        std::uint8_t* codes, const Int8Activations& activations) {
    auto* const rows = static_cast<typename Tile::Row*>(room);
    const std::size_t width = (panels.n_bits + 7) / 8;
    float factors[kRoomRows];
    const auto active = [&](std::size_t i) {
        return activations.out == nullptr ? nullptr : activations.out + i * activations.stride;
    };
    std::size_t first_bad = n;
    for (std::size_t block = 0; block < n; block += kRoomRows) {
        const std::size_t count = n - block < kRoomRows ? n - block : kRoomRows;
        // Without centres and scales to share, a row is best quantised while it is in the first-level cache.
        constexpr std::size_t kTogether = kStandardise ? 6 : 1;
        for (std::size_t i = 0; i < count; i += kTogether) {
            const std::size_t together = count - i < kTogether ? count - i : kTogether;
            const std::size_t bad = quantise_rows<Tile, kStandardise, kTogether, Source>(
                panels, features, start + block + i, together, rows + i * panels.n_padded, factors + i);
            if (bad < together && first_bad == n) first_bad = block + i + bad;
        }
        Upcoming upcoming = rows_of<Source>(features, start + block + count, kRoomRows);
        std::size_t i = 0;
        for (; i + Tile::kRows <= count; i += Tile::kRows) {
            encode_tile<Tile, Tile::kRows>(panels, rows + i * panels.n_padded, factors + i, codes + (block + i) * width,
                                           activations, active(block + i), upcoming);
        }
        for (; i < count; ++i) {
            encode_tile<Tile, 1>(panels, rows + i * panels.n_padded, factors + i, codes + (block + i) * width, activations,
                                 active(block + i), upcoming);
        }
    }
    return first_bad;
}

template <class Tile, class Source>
std::size_t encode_rows_of(const Int8Panels& panels, const Features& features, std::size_t start, std::size_t n, void* room,
                           std::uint8_t* codes, const Int8Activations& activations) {
    if (panels.centre == nullptr) {
        return encode_rows<Tile, false, Source>(panels, features, start, n, room, codes, activations);
    }
    return encode_rows<Tile, true, Source>(panels, features, start, n, room, codes, activations);
}

template <class Tile>
std::size_t encode(const Int8Panels& panels, const Features& features, std::size_t start, std::size_t n, void* room,
                   std::uint8_t* codes, const Int8Activations& activations) {
    switch (features.type) {
        case Features::Type::float16: return encode_rows_of<Tile, Half>(panels, features, start, n, room, codes, activations);
        case Features::Type::float32: return encode_rows_of<Tile, float>(panels, features, start, n, room, codes, activations);
        case Features::Type::float64: return encode_rows_of<Tile, double>(panels, features, start, n, room, codes, activations);
    }
    return n;
}

}  // namespace
