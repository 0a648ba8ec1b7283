#include "ngrams.hpp"

#include <algorithm>
#include <cmath>

namespace bitclass {
namespace {

constexpr std::uint64_t kCharSeed = 0x9E3779B97F4A7C15u;
constexpr std::uint64_t kWordSeed = 0xD1B54A32D192ED03u;
constexpr std::uint64_t kStep = 0x9FB21C651E98DF25u;
constexpr std::uint64_t kLast = 0xD6E8FEB86659FD93u;

// N-grams that are collected before they are added to the sums of all columns.
constexpr std::size_t kMaxKeys = 1 << 16;
constexpr int kDigitBits = 10;

inline std::uint64_t extended(std::uint64_t state, std::uint32_t c) { return (state ^ c) * kStep; }

inline std::uint64_t finished(std::uint64_t state) {
    state ^= state >> 32;
    state *= kLast;
    return state ^ (state >> 32);
}

// Upper case to lower case, every `step`th code point from first to last: all of the Latin, Greek,
// Cyrillic and Armenian blocks below U+0590 whose lower case is one code point.
struct CaseRange {
    std::uint16_t first, last, step;
    std::int32_t shift;
};
constexpr CaseRange kCases[] = {
    {0x41, 0x5A, 1, 32},      {0xC0, 0xD6, 1, 32},      {0xD8, 0xDE, 1, 32},     {0x100, 0x12E, 2, 1},
    {0x132, 0x136, 2, 1},     {0x139, 0x147, 2, 1},     {0x14A, 0x176, 2, 1},    {0x178, 0x178, 1, -121},
    {0x179, 0x17D, 2, 1},     {0x181, 0x181, 1, 210},   {0x182, 0x184, 2, 1},    {0x186, 0x186, 1, 206},
    {0x187, 0x187, 1, 1},     {0x189, 0x18A, 1, 205},   {0x18B, 0x18B, 1, 1},    {0x18E, 0x18E, 1, 79},
    {0x18F, 0x18F, 1, 202},   {0x190, 0x190, 1, 203},   {0x191, 0x191, 1, 1},    {0x193, 0x193, 1, 205},
    {0x194, 0x194, 1, 207},   {0x196, 0x196, 1, 211},   {0x197, 0x197, 1, 209},  {0x198, 0x198, 1, 1},
    {0x19C, 0x19C, 1, 211},   {0x19D, 0x19D, 1, 213},   {0x19F, 0x19F, 1, 214},  {0x1A0, 0x1A4, 2, 1},
    {0x1A6, 0x1A6, 1, 218},   {0x1A7, 0x1A7, 1, 1},     {0x1A9, 0x1A9, 1, 218},  {0x1AC, 0x1AC, 1, 1},
    {0x1AE, 0x1AE, 1, 218},   {0x1AF, 0x1AF, 1, 1},     {0x1B1, 0x1B2, 1, 217},  {0x1B3, 0x1B5, 2, 1},
    {0x1B7, 0x1B7, 1, 219},   {0x1B8, 0x1B8, 1, 1},     {0x1BC, 0x1BC, 1, 1},    {0x1C4, 0x1C4, 1, 2},
    {0x1C5, 0x1C5, 1, 1},     {0x1C7, 0x1C7, 1, 2},     {0x1C8, 0x1C8, 1, 1},    {0x1CA, 0x1CA, 1, 2},
    {0x1CB, 0x1DB, 2, 1},     {0x1DE, 0x1EE, 2, 1},     {0x1F1, 0x1F1, 1, 2},    {0x1F2, 0x1F4, 2, 1},
    {0x1F6, 0x1F6, 1, -97},   {0x1F7, 0x1F7, 1, -56},   {0x1F8, 0x21E, 2, 1},    {0x220, 0x220, 1, -130},
    {0x222, 0x232, 2, 1},     {0x23A, 0x23A, 1, 10795}, {0x23B, 0x23B, 1, 1},    {0x23D, 0x23D, 1, -163},
    {0x23E, 0x23E, 1, 10792}, {0x241, 0x241, 1, 1},     {0x243, 0x243, 1, -195}, {0x244, 0x244, 1, 69},
    {0x245, 0x245, 1, 71},    {0x246, 0x24E, 2, 1},     {0x370, 0x372, 2, 1},    {0x376, 0x376, 1, 1},
    {0x37F, 0x37F, 1, 116},   {0x386, 0x386, 1, 38},    {0x388, 0x38A, 1, 37},   {0x38C, 0x38C, 1, 64},
    {0x38E, 0x38F, 1, 63},    {0x391, 0x3A1, 1, 32},    {0x3A3, 0x3AB, 1, 32},   {0x3CF, 0x3CF, 1, 8},
    {0x3D8, 0x3EE, 2, 1},     {0x3F4, 0x3F4, 1, -60},   {0x3F7, 0x3F7, 1, 1},    {0x3F9, 0x3F9, 1, -7},
    {0x3FA, 0x3FA, 1, 1},     {0x3FD, 0x3FF, 1, -130},  {0x400, 0x40F, 1, 80},   {0x410, 0x42F, 1, 32},
    {0x460, 0x480, 2, 1},     {0x48A, 0x4BE, 2, 1},     {0x4C0, 0x4C0, 1, 15},   {0x4C1, 0x4CD, 2, 1},
    {0x4D0, 0x52E, 2, 1},     {0x531, 0x556, 1, 48},
};
constexpr std::uint32_t kTableEnd = 0x590;

bool separates(std::uint32_t c) {
    if (c < 0x80) return !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
    if (c < 0xC0 || c == 0xD7 || c == 0xF7) return true;  // Latin-1 signs
    if (c < 0x600) return false;
    if (c < 0x2000) return c == 0x60C || c == 0x61B || c == 0x61F || c == 0x6D4 || c == 0x964 || c == 0x965;
    if (c < 0x2070) return true;                                      // general punctuation
    if (c >= 0x3000 && c < 0x3040) return c < 0x3005 || c > 0x3007;   // CJK punctuation
    if (c >= 0xFE10 && c < 0xFE70) return c < 0xFE20 || c >= 0xFE30;  // forms of punctuation
    if (c >= 0xFF00 && c < 0xFF66) {                                  // wide ASCII
        return !((c >= 0xFF10 && c <= 0xFF19) || (c >= 0xFF21 && c <= 0xFF3A) || (c >= 0xFF41 && c <= 0xFF5A));
    }
    return c >= 0xFFF0 && c <= 0xFFFF;
}

// The lower-case character of each code point below kTableEnd, 0 for separators of words.
std::array<std::uint16_t, kTableEnd> character_table() {
    std::array<std::uint16_t, kTableEnd> table{};
    for (std::uint32_t c = 0; c < kTableEnd; ++c) table[c] = separates(c) ? 0 : static_cast<std::uint16_t>(c);
    for (const CaseRange& range : kCases) {
        for (std::uint32_t c = range.first; c <= range.last; c += range.step) {
            table[c] = static_cast<std::uint16_t>(static_cast<std::int32_t>(c) + range.shift);
        }
    }
    return table;
}
const std::array<std::uint16_t, kTableEnd> kCharacters = character_table();

// The lower-case character of a code point, 0 if it separates words.
inline std::uint32_t character(std::uint32_t c) {
    if (c < kTableEnd) return kCharacters[c];
    if (separates(c)) return 0;
    if (c >= 0x1E00 && c <= 0x1EFF) {  // Latin of Vietnamese and others
        if (c == 0x1E9E) return 0xDF;
        return c < 0x1E95 || c >= 0x1EA0 ? c | 1 : c;
    }
    return c >= 0xFF21 && c <= 0xFF3A ? c + 32 : c;
}

// The code point at `text`, and its length; U+FFFD and 1 if the bytes are not valid UTF-8.
struct CodePoint {
    std::uint32_t value;
    int length;
};
inline CodePoint code_point(const unsigned char* text, std::size_t left) {
    constexpr CodePoint kInvalid{0xFFFD, 1};
    const std::uint32_t lead = text[0];
    const int length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 1) return {lead, 1};
    if (length == 0 || static_cast<std::size_t>(length) > left) return kInvalid;
    std::uint32_t value = lead & (0xFFu >> (length + 1));
    for (int i = 1; i < length; ++i) {
        if ((text[i] & 0xC0) != 0x80) return kInvalid;
        value = value << 6 | (text[i] & 0x3F);
    }
    const bool too_long = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
    if (too_long || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return kInvalid;
    return {value, length};
}

}  // namespace

NgramCounter::NgramCounter(const NgramLengths& lengths, int column_bits)
    : lengths_(lengths), column_bits_(column_bits) {
    chars_[0] = kCharSeed;
}

inline void NgramCounter::emit(std::uint64_t state) {
    const std::uint64_t hash = finished(state);
    keys_.push_back(static_cast<std::uint32_t>(hash >> (64 - column_bits_)) << 1 |
                    static_cast<std::uint32_t>(hash & 1));
}

inline void NgramCounter::add_char(std::uint32_t c) {
    for (int n = lengths_.max_chars; n >= 1; --n) chars_[n] = extended(chars_[n - 1], c);
    n_chars_ = std::min(n_chars_ + 1, kMaxChars);
    const int longest = std::min(lengths_.max_chars, n_chars_);
    for (int n = lengths_.min_chars; n <= longest; ++n) emit(chars_[n]);
}

void NgramCounter::begin_word() {
    n_chars_ = 0;
    if (lengths_.max_chars > 0) add_char(' ');
    for (int n = lengths_.max_words; n >= 2; --n) words_[n] = extended(words_[n - 1], ' ');
    words_[1] = kWordSeed;
    n_words_ = std::min(n_words_ + 1, kMaxWords);
}

void NgramCounter::end_word() {
    if (lengths_.max_chars > 0) {
        add_char(' ');
        // A word that is too short for any n-gram becomes an n-gram itself.
        if (n_chars_ < lengths_.min_chars) emit(chars_[n_chars_]);
    }
    if (lengths_.max_words > 0) {
        const int longest = std::min(lengths_.max_words, n_words_);
        for (int n = lengths_.min_words; n <= longest; ++n) emit(words_[n]);
    }
}

void NgramCounter::count(const char* text, std::size_t size) {
    keys_.clear();
    columns_.clear();
    sums_.clear();
    n_words_ = 0;
    bool spilled = false;
    bool in_word = false;
    const auto* bytes = reinterpret_cast<const unsigned char*>(text);
    for (std::size_t at = 0; at < size;) {
        const CodePoint next = code_point(bytes + at, size - at);
        at += static_cast<std::size_t>(next.length);
        const std::uint32_t c = character(next.value);
        if (c == 0) {
            if (in_word) end_word();
            in_word = false;
        } else {
            if (!in_word) begin_word();
            in_word = true;
            if (lengths_.max_chars > 0) add_char(c);
            for (int n = 1; n <= lengths_.max_words; ++n) words_[n] = extended(words_[n], c);
        }
        if (keys_.size() >= kMaxKeys) {
            spill();
            spilled = true;
        }
    }
    if (in_word) end_word();
    if (spilled) {
        spill();
        collect();
    } else {
        sort_keys();
    }
}

// Adds the n-grams to the sums of all columns.
void NgramCounter::spill() {
    dense_.resize(std::size_t{1} << column_bits_, 0);
    for (const std::uint32_t key : keys_) dense_[key >> 1] += key & 1 ? 1 : -1;
    keys_.clear();
}

void NgramCounter::collect() {
    for (std::size_t column = 0; column < dense_.size(); ++column) {
        if (dense_[column] == 0) continue;
        columns_.push_back(static_cast<std::uint32_t>(column));
        sums_.push_back(dense_[column]);
        dense_[column] = 0;
    }
}

// Radix sort, then the sum of each run.
void NgramCounter::sort_keys() {
    sorted_.resize(keys_.size());
    std::uint32_t places[1 << kDigitBits];
    for (int shift = 1; shift <= column_bits_; shift += kDigitBits) {
        const std::uint32_t mask = (1u << kDigitBits) - 1;
        std::fill(std::begin(places), std::end(places), 0u);
        for (const std::uint32_t key : keys_) ++places[key >> shift & mask];
        std::uint32_t place = 0;
        for (std::uint32_t& entry : places) {
            const std::uint32_t n = entry;
            entry = place;
            place += n;
        }
        for (const std::uint32_t key : keys_) sorted_[places[key >> shift & mask]++] = key;
        keys_.swap(sorted_);
    }
    for (std::size_t i = 0; i < keys_.size();) {
        const std::uint32_t column = keys_[i] >> 1;
        std::int32_t sum = 0;
        for (; i < keys_.size() && keys_[i] >> 1 == column; ++i) sum += keys_[i] & 1 ? 1 : -1;
        if (sum == 0) continue;
        columns_.push_back(column);
        sums_.push_back(sum);
    }
}

NgramExtractor::NgramExtractor(const NgramLengths& lengths, int column_bits, const float* weights)
    : lengths_(lengths), column_bits_(column_bits) {
    if (weights != nullptr) weights_.assign(weights, weights + (std::size_t{1} << column_bits));
}

std::size_t NgramExtractor::append(const char* text, std::size_t size, Row& out) const {
    NgramCounter& counter = out.counter;
    counter.count(text, size);
    out.exact.clear();
    double squares = 0.0;
    for (std::size_t i = 0; i < counter.size(); ++i) {
        const std::uint32_t column = counter.column(i);
        const double weight = weights_.empty() ? 1.0 : double{weights_[column]};
        if (weight == 0.0) continue;
        const std::int32_t sum = counter.sum(i);
        const double size_of_sum = std::abs(sum) == 1 ? 1.0 : 1.0 + std::log(static_cast<double>(std::abs(sum)));
        const double value = (sum > 0 ? size_of_sum : -size_of_sum) * weight;
        squares += value * value;
        out.columns.push_back(static_cast<std::int32_t>(column));
        out.exact.push_back(value);
    }
    const double length = std::sqrt(squares);
    for (const double value : out.exact) out.values.push_back(static_cast<float>(value / length));
    return out.exact.size();
}

}  // namespace bitclass
