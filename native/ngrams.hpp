// Text to sparse rows: character and word n-grams, hashed into columns with a sign.
//
// src/bitclass/_native/ngrams.py is the Python equivalent; docs/text.md describes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bitclass {

// Lengths of n-grams; a kind with maximum length 0 is disabled.
struct NgramLengths {
    int min_chars, max_chars;
    int min_words, max_words;
};

constexpr int kMaxChars = 10;
constexpr int kMaxWords = 5;
constexpr int kMaxColumnBits = 24;

// The n-grams of one text, counted by column. Reused for several texts to keep its memory, which is bounded
// by the number of columns however long a text is.
class NgramCounter {
public:
    // Lengths and column_bits are within the limits above, and checked by the caller.
    NgramCounter(const NgramLengths& lengths, int column_bits);

    // Takes any bytes; those that are not valid UTF-8 separate words.
    void count(const char* text, std::size_t size);

    // Columns in ascending order, and the sum of the signs of the n-grams in each, never 0.
    std::size_t size() const { return columns_.size(); }
    std::uint32_t column(std::size_t i) const { return columns_[i]; }
    std::int32_t sum(std::size_t i) const { return sums_[i]; }

private:
    void begin_word();
    void end_word();
    void add_char(std::uint32_t c);
    void emit(std::uint64_t state);
    void spill();
    void sort_keys();
    void collect();

    NgramLengths lengths_;
    int column_bits_;
    // State n is the hash state of the n-gram of n characters or words that ends here.
    std::array<std::uint64_t, kMaxChars + 1> chars_{};
    std::array<std::uint64_t, kMaxWords + 1> words_{};
    int n_chars_ = 0;  // of this word, including its boundaries, up to kMaxChars
    int n_words_ = 0;
    std::vector<std::uint32_t> keys_, sorted_;  // column and sign of each n-gram
    std::vector<std::int32_t> dense_;           // sums of all columns, for texts with very many n-grams
    std::vector<std::uint32_t> columns_;
    std::vector<std::int32_t> sums_;
};

// Rows of texts: (1 + log |sum|) times the weight of the column, with the sign of the sum, scaled to
// length 1.
class NgramExtractor {
public:
    // weights: (2^column_bits,) finite and >= 0; columns of weight 0 are skipped. Null if all are 1.
    NgramExtractor(const NgramLengths& lengths, int column_bits, const float* weights);

    struct Row {
        explicit Row(const NgramExtractor& extractor) : counter(extractor.lengths_, extractor.column_bits_) {}
        NgramCounter counter;
        std::vector<std::int32_t> columns;
        std::vector<float> values;
        std::vector<double> exact;
    };

    // Appends one row to those of `out`, and returns its number of columns.
    std::size_t append(const char* text, std::size_t size, Row& out) const;

    int column_bits() const { return column_bits_; }

private:
    NgramLengths lengths_;
    int column_bits_;
    std::vector<float> weights_;
};

class HammingIndex;
struct Found;
struct SparseProjection;

// Predicts texts in one pass: the nearest class of each, or, unless n_candidates is 0, the best of the n_candidates
// nearest by real-valued codes, with its score. Equivalent to predict and predict_rescored of encode.hpp on the rows of
// the texts.
void predict_texts(const NgramExtractor& extractor, const SparseProjection& projection, const HammingIndex& index,
                   const std::vector<std::string_view>& texts, std::size_t n_candidates, Found found,
                   int n_threads);

}  // namespace bitclass
