#include <cmath>

#include "../ngrams.hpp"
#include "check.hpp"

namespace bitclass::tests {
namespace {

// Any bytes, in an array of the exact size: no byte past the end may be read.
void check_rows(Random& random, const NgramLengths& lengths, int column_bits) {
    const NgramExtractor extractor(lengths, column_bits, nullptr);
    NgramExtractor::Row row(extractor);
    for (int text = 0; text < 300; ++text) {
        auto bytes = random.bytes(static_cast<std::size_t>(random.integer(0, 40)));
        for (auto& byte : bytes) {
            // More UTF-8 lead bytes and letters than in uniformly random bytes.
            if (random.integer(0, 2) == 0) byte = static_cast<std::uint8_t>(0xC0 + random.integer(0, 0x3F));
            if (random.integer(0, 2) == 0) byte = static_cast<std::uint8_t>('A' + random.integer(0, 60));
        }
        row.columns.clear();
        row.values.clear();
        const std::size_t n = extractor.append(reinterpret_cast<const char*>(bytes.data()), bytes.size(), row);
        CHECK(row.columns.size() == n && row.values.size() == n);
        double squares = 0.0;
        for (std::size_t i = 0; i < n; ++i) {
            CHECK(row.columns[i] >= 0 && row.columns[i] < 1 << column_bits);
            CHECK(i == 0 || row.columns[i - 1] < row.columns[i]);
            squares += static_cast<double>(row.values[i]) * row.values[i];
        }
        CHECK(n == 0 || std::fabs(squares - 1.0) < 1e-5);
    }
}

// A text with more n-grams than are collected at once has the columns of its parts, and leaves no state behind.
void check_long_text() {
    const NgramLengths lengths{2, 4, 1, 1};
    NgramCounter counter(lengths, 10);
    const std::string word = "word ";
    counter.count(word.data(), word.size());
    const std::size_t n_columns = counter.size();
    std::string text;
    for (int i = 0; i < 20000; ++i) text += word;
    counter.count(text.data(), text.size());
    CHECK(counter.size() == n_columns);
    for (std::size_t i = 0; i < n_columns; ++i) CHECK(std::abs(counter.sum(i)) % 20000 == 0);
    counter.count(word.data(), word.size());
    CHECK(counter.size() == n_columns);
    counter.count(nullptr, 0);
    CHECK(counter.size() == 0);
}

}  // namespace

void test_ngrams() {
    Random random(1);
    check_rows(random, {1, 4, 1, 2}, 18);
    check_rows(random, {kMaxChars, kMaxChars, kMaxWords, kMaxWords}, 8);
    check_rows(random, {0, 0, 1, 1}, 20);
    check_rows(random, {2, 3, 0, 0}, 10);
    check_long_text();
}

}  // namespace bitclass::tests
