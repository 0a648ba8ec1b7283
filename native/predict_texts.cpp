#include <algorithm>

#include "dispatch.hpp"
#include "ngrams.hpp"
#include "pool.hpp"

namespace bitclass {

void predict_texts(const NgramExtractor& extractor, const SparseProjection& projection, const HammingIndex& index,
                   const std::vector<std::string_view>& texts, std::size_t n_candidates, Found found,
                   int n_threads) {
    constexpr std::size_t kTextsPerChunk = 32;
    parallel_for(chunks_of(texts.size(), kTextsPerChunk), n_threads, [&](std::size_t chunk) {
        const std::size_t start = chunk * kTextsPerChunk;
        const std::size_t n = std::min(kTextsPerChunk, texts.size() - start);
        NgramExtractor::Row row(extractor);
        std::vector<std::int64_t> starts{0};
        for (std::size_t i = start; i < start + n; ++i) {
            extractor.append(texts[i].data(), texts[i].size(), row);
            starts.push_back(static_cast<std::int64_t>(row.columns.size()));
        }
        std::vector<float> scores(n * projection.n_bits);
        sparse_scores({starts.data(), row.columns.data(), row.values.data(), n}, projection, scores.data(), 1);
        if (n_candidates > 0) {
            rescore(scores.data(), n, projection.n_bits, projection.intercept, index, {n_candidates, 1},
                    found.from(start), 1);
            return;
        }
        std::vector<std::uint8_t> codes(n * packed_width(projection.n_bits));
        kernels().encode.pack(scores.data(), n, projection.n_bits, projection.intercept, codes.data());
        index.nearest(codes.data(), n, found.from(start), 1);
    });
}

}  // namespace bitclass
