#include "class_runs.hpp"

#include <stdexcept>
#include <string>

#include "../pool.hpp"
#include "../training.hpp"
#include "tiles.hpp"

namespace bitclass {
namespace {

std::uint16_t piece_of(const std::uint8_t* code, std::size_t n_bytes, std::size_t piece) {
    const std::size_t at = 2 * piece;
    const unsigned high = at + 1 < n_bytes ? code[at + 1] : 0u;
    return static_cast<std::uint16_t>(code[at] | high << 8);
}

}  // namespace

std::vector<ClassRun> class_runs(const std::intptr_t* y, std::size_t n, std::size_t n_classes) {
    constexpr std::size_t kAtOnce = 16;
    std::vector<ClassRun> runs;
    for (std::size_t begin = 0; begin < n;) {
        require_classes(y + begin, 1, n_classes, "y");
        std::size_t end = begin + 1;
        for (; end + kAtOnce <= n; end += kAtOnce) {
            std::intptr_t different = 0;
            for (std::size_t i = 0; i < kAtOnce; ++i) different |= y[end + i] ^ y[begin];
            if (different != 0) break;
        }
        while (end < n && y[end] == y[begin]) ++end;
        runs.push_back({static_cast<std::size_t>(y[begin]), begin, end});
        begin = end;
    }
    return runs;
}

void require_ascending(const std::vector<ClassRun>& runs) {
    for (std::size_t i = 1; i < runs.size(); ++i) {
        if (runs[i].y < runs[i - 1].y) {
            throw std::invalid_argument("y: expected ascending class indices, found " + std::to_string(runs[i].y) +
                                        " after " + std::to_string(runs[i - 1].y));
        }
    }
}

void require_padding(PackedRows codes, std::size_t n_bits, const char* name) {
    if (n_bits % 8 == 0) return;
    const std::uint8_t padding = static_cast<std::uint8_t>(0xff << n_bits % 8);
    std::uint8_t found = 0;
    for (std::size_t i = 1; i <= codes.n; ++i) found |= codes.codes[i * codes.n_bytes - 1];
    if ((found & padding) != 0) {
        throw std::invalid_argument(std::string(name) + ": expected zeros in the padding bits, found ones");
    }
}

std::vector<std::uint32_t> doubled_pieces(PackedRows codes) {
    const std::size_t n_pieces = pieces_of(codes.n_bytes);
    std::vector<std::uint32_t> pieces(codes.n * n_pieces);
    for (std::size_t i = 0; i < codes.n; ++i) {
        for (std::size_t piece = 0; piece < n_pieces; ++piece) {
            pieces[i * n_pieces + piece] = piece_of(codes.codes + i * codes.n_bytes, codes.n_bytes, piece) * 0x10001u;
        }
    }
    return pieces;
}

std::vector<std::uint16_t> grouped_pieces(PackedRows codes) {
    const std::size_t n_pieces = pieces_of(codes.n_bytes);
    std::vector<std::uint16_t> pieces(chunks_of(codes.n, kPieceColumns) * n_pieces * kPieceColumns);
    for (std::size_t i = 0; i < codes.n; ++i) {
        std::uint16_t* group = pieces.data() + i / kPieceColumns * n_pieces * kPieceColumns;
        for (std::size_t piece = 0; piece < n_pieces; ++piece) {
            group[piece * kPieceColumns + i % kPieceColumns] =
                piece_of(codes.codes + i * codes.n_bytes, codes.n_bytes, piece);
        }
    }
    return pieces;
}

}  // namespace bitclass
