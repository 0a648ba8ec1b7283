// The inner loops of the paper's kernels: see tiles.hpp. Included by simd/level.cpp.

// 16-bit lanes of a vector.
constexpr std::size_t kShorts = kVectorBytes / 2;

// Counts per byte, added in pairs.
inline Shorts in_shorts(Bytes counts) { return ((Shorts)counts & 0xff) + ((Shorts)counts >> 8); }
inline Shorts in_shorts(Shorts counts) { return counts; }

// R rows of a tile of indices, from row `first` on, which share each load of a piece of the columns.
template <std::size_t R>
inline __attribute__((always_inline)) void index_rows(const CodeTile& tile, std::size_t first) {
    using Words = Vector<std::uint32_t>;
    for (std::size_t column = 0; column < kPieceColumns; column += kShorts) {
        Shorts distances[R] = {};
        const auto add = [&](std::size_t begin, std::size_t end) __attribute__((always_inline)) {
            Isa::Counts counts[R] = {};
            for (std::size_t piece = begin; piece < end; ++piece) {
                const auto columns = load<Words>(tile.pieces + piece * kPieceColumns + column);
                for (std::size_t r = 0; r < R; ++r) {
                    const Words row = Words{} + tile.rows[(first + r) * tile.n_pieces + piece];
                    counts[r] += Isa::count((Isa::Counts)(columns ^ row));
                }
            }
            for (std::size_t r = 0; r < R; ++r) distances[r] += in_shorts(counts[r]);
        };
        constexpr std::size_t kMaxPieces = 31;  // whose set bits a byte can count without overflow
        std::size_t piece = 0;
        if constexpr (std::is_same_v<Isa::Counts, Bytes>) {
            for (; piece + kMaxPieces < tile.n_pieces; piece += kMaxPieces) add(piece, piece + kMaxPieces);
        }
        add(piece, tile.n_pieces);
        const auto base = load<Shorts>(tile.column_base + column);
        const Shorts limit = Shorts{} + tile.limit, scale = Shorts{} + tile.scale;
        for (std::size_t r = 0; r < R; ++r) {
            const Shorts index = base + tile.row_base[first + r] - distances[r];
            store(tile.out + (first + r) * tile.out_stride + column, (index < limit ? index : limit) * scale);
        }
    }
}

void indices_from_codes(const CodeTile& tile) {
    std::size_t row = 0;
    for (; row + 4 <= tile.n_rows; row += 4) index_rows<4>(tile, row);
    for (; row < tile.n_rows; ++row) index_rows<1>(tile, row);
}

void prepare_rows(const std::uint8_t* codes, std::size_t n_bytes, const std::size_t* rows, std::size_t n_rows,
                  const std::uint8_t* weights, const std::size_t* y, std::uint32_t* row_pieces,
                  std::uint16_t* y_distances) {
    for (std::size_t i = 0; i < n_rows; ++i) {
        const std::uint8_t* code = codes + rows[i] * n_bytes;
        const std::uint8_t* weight = weights + y[i] * n_bytes;
        int distance = 0;
        for (std::size_t at = 0; at < n_bytes; at += 8) {
            const std::size_t width = n_bytes - at < 8 ? n_bytes - at : 8;
            std::uint64_t a = 0;
            std::uint64_t b = 0;
            if (width == 8) {
                std::memcpy(&a, code + at, 8);
                std::memcpy(&b, weight + at, 8);
            } else {
                std::memcpy(&a, code + at, width);
                std::memcpy(&b, weight + at, width);
            }
            distance += __builtin_popcountll(a ^ b);
            for (std::size_t byte = 0; byte < width; byte += 2) {
                *row_pieces++ = static_cast<std::uint32_t>(a & 0xffff) * 0x10001u;
                a >>= 16;
            }
        }
        y_distances[i] = static_cast<std::uint16_t>(distance);
    }
}

void block_indices(const std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                   const std::int16_t* lane_base, std::uint16_t limit, std::uint16_t* out) {
    for (std::size_t lane = 0; lane < kLanes; lane += kShorts) {
        const auto base = load<Shorts>(lane_base + lane);
        const auto most = Shorts{} + limit;
        for (std::size_t j = 0; j < n_classes; ++j) {
            const auto index = load<Shorts>(margins + classes[j] * kLanes + lane) + base;
            const auto safe = index < most ? index : most;
            store(out + j * kLanes + lane, safe + safe);
        }
    }
}

void block_shift(std::int16_t* margins, const std::uint32_t* classes, std::size_t n_classes,
                 const std::int16_t* change) {
    for (std::size_t lane = 0; lane < kLanes; lane += kShorts) {
        const auto by = load<Shorts>(change + lane);
        for (std::size_t j = 0; j < n_classes; ++j) {
            std::int16_t* margin = margins + classes[j] * kLanes + lane;
            store(margin, load<Shorts>(margin) + by);
        }
    }
}

void block_top(const std::int16_t* margins, std::size_t n_classes, std::int16_t* top) {
    using Margins = Vector<std::int16_t>;
    for (std::size_t lane = 0; lane < kLanes; lane += kShorts) {
        auto most = load<Margins>(margins + lane);
        for (std::size_t c = 1; c < n_classes; ++c) {
            const auto margin = load<Margins>(margins + c * kLanes + lane);
            most = margin > most ? margin : most;
        }
        store(top + lane, most);
    }
}

constexpr PaperKernels kPaperKernels = {
    &indices_from_codes, &prepare_rows, &block_indices, &block_shift, &block_top,
};
