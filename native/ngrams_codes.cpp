#include "ngrams_codes.hpp"

#include <algorithm>

#include "dispatch.hpp"
#include "pool.hpp"

namespace bitclass {
namespace {

constexpr std::size_t kTextsPerChunk = 32;

}  // namespace

void text_scores(const NgramHasher& hasher, const SparseProjection& projection, const std::string_view* texts,
                 std::size_t n, float* scores) {
    const SparseKernels& level = kernels().sparse;
    NgramHasher::Row row(hasher);
    std::vector<SparseEntry> entries;
    for (std::size_t i = 0; i < n; ++i) {
        row.columns.clear();
        row.values.clear();
        entries.clear();
        const std::size_t n_columns = hasher.append(texts[i].data(), texts[i].size(), row);
        for (std::size_t e = 0; e < n_columns; ++e) {
            const std::int32_t column = row.columns[e];
            const std::int32_t place = projection.kept.places == nullptr ? column : projection.kept.places[column];
            if (place < 0) continue;
            const float factor = projection.kept.factors == nullptr ? 1.0f : projection.kept.factors[place];
            entries.push_back({static_cast<std::uint32_t>(place), factor * row.values[e]});
        }
        float* out = scores + i * projection.n_bits;
        if (projection.floats != nullptr) {
            level.add_floats(entries.data(), entries.size(), projection.floats, projection.n_bits, out);
        } else {
            level.add_bytes(entries.data(), entries.size(), projection.bytes, projection.n_bits, out);
        }
        if (projection.steps == nullptr) continue;
        for (std::size_t bit = 0; bit < projection.n_bits; ++bit) out[bit] *= projection.steps[bit];
    }
}

void predict_texts(const NgramHasher& hasher, const SparseProjection& projection, const HammingIndex& index,
                   const std::vector<std::string_view>& texts, const float* scale, std::size_t n_candidates,
                   std::size_t k, std::int64_t* indices, std::int32_t* scores, std::int32_t* distances, int n_threads) {
    parallel_for(chunks_of(texts.size(), kTextsPerChunk), n_threads, [&](std::size_t chunk) {
        const std::size_t start = chunk * kTextsPerChunk;
        const std::size_t n = std::min(kTextsPerChunk, texts.size() - start);
        std::vector<float> values(n * projection.n_bits);
        text_scores(hasher, projection, texts.data() + start, n, values.data());
        if (n_candidates > 0) {
            rescore(values.data(), n, projection.n_bits, projection.intercept, index, scale, n_candidates, k,
                    indices + start * k, scores + start * k, distances + start * k, 1);
            return;
        }
        std::vector<std::uint8_t> codes(n * packed_width(projection.n_bits));
        pack_signs(values.data(), n, projection.n_bits, projection.intercept, codes.data(), 1);
        index.nearest(codes.data(), n, indices + start, distances + start, 1);
    });
}

}  // namespace bitclass
