#include "sparse.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dispatch.hpp"
#include "pool.hpp"

namespace bitclass {

namespace {

constexpr std::size_t kRowsPerChunk = 32;
constexpr std::size_t kColumnsPerChunk = 64;
constexpr float kDecay = 0.99f;  // of the running mean of squared gradients
constexpr float kTiny = 1e-20f;

// An entry of a mini-batch, with its column.
struct ColumnEntry {
    std::uint32_t column;
    SparseEntry entry;  // the row of the batch, and the value
};

// Stable sort by column, so that the rows of each column stay in order.
void sort_by_column(std::vector<ColumnEntry>& entries, std::size_t n_columns) {
    constexpr unsigned kBits = 11;
    constexpr std::size_t kBuckets = std::size_t{1} << kBits;
    std::vector<ColumnEntry> sorted(entries.size());
    for (unsigned shift = 0; shift == 0 || (n_columns - 1) >> shift != 0; shift += kBits) {
        std::size_t starts[kBuckets + 1] = {};
        for (const ColumnEntry& entry : entries) ++starts[((entry.column >> shift) & (kBuckets - 1)) + 1];
        for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) starts[bucket + 1] += starts[bucket];
        for (const ColumnEntry& entry : entries) sorted[starts[(entry.column >> shift) & (kBuckets - 1)]++] = entry;
        entries.swap(sorted);
    }
}

}  // namespace

void sparse_scores(const SparseRows& rows, const SparseProjection& projection, float* scores, int n_threads) {
    const SparseKernels& level = kernels().sparse;
    parallel_for(chunks_of(rows.n, kRowsPerChunk), n_threads, [&](std::size_t chunk) {
        std::vector<SparseEntry> entries;
        const std::size_t end = std::min(rows.n, (chunk + 1) * kRowsPerChunk);
        for (std::size_t i = chunk * kRowsPerChunk; i < end; ++i) {
            entries.clear();
            for (std::int64_t e = rows.starts[i]; e < rows.starts[i + 1]; ++e) {
                const std::int32_t column = rows.columns[e];
                const std::int32_t place = projection.places == nullptr ? column : projection.places[column];
                if (place < 0) {
                    // A non-finite value must show in the scores even if its column is not kept.
                    if (!std::isfinite(rows.values[e])) entries.push_back({0, rows.values[e]});
                    continue;
                }
                const float factor = projection.factors == nullptr ? 1.0f : projection.factors[place];
                entries.push_back({static_cast<std::uint32_t>(place), factor * rows.values[e]});
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
    });
}

void sparse_step(const SparseRows& rows, const float* gradients, float size, float* projection, float* squares,
                 std::int32_t* counts, std::size_t n_columns, std::size_t n_bits, int n_threads) {
    std::vector<ColumnEntry> by_column;
    for (std::size_t i = 0; i < rows.n; ++i) {
        for (std::int64_t e = rows.starts[i]; e < rows.starts[i + 1]; ++e) {
            by_column.push_back(
                {static_cast<std::uint32_t>(rows.columns[e]), {static_cast<std::uint32_t>(i), rows.values[e]}});
        }
    }
    sort_by_column(by_column, n_columns);
    std::vector<SparseEntry> entries(by_column.size());
    std::vector<std::size_t> bounds;  // of the columns that occur
    for (std::size_t e = 0; e < by_column.size(); ++e) {
        entries[e] = by_column[e].entry;
        if (e == 0 || by_column[e].column != by_column[e - 1].column) bounds.push_back(e);
    }
    const std::size_t n_present = bounds.size();
    bounds.push_back(by_column.size());

    const SparseKernels& level = kernels().sparse;
    parallel_for(chunks_of(n_present, kColumnsPerChunk), n_threads, [&](std::size_t chunk) {
        std::vector<float> gradient(n_bits);
        const std::size_t end = std::min(n_present, (chunk + 1) * kColumnsPerChunk);
        for (std::size_t at = chunk * kColumnsPerChunk; at < end; ++at) {
            const std::size_t column = by_column[bounds[at]].column;
            level.add_floats(entries.data() + bounds[at], bounds[at + 1] - bounds[at], gradients, n_bits,
                             gradient.data());
            const float square = level.mean_square(gradient.data(), n_bits);
            if (!(square > kTiny)) continue;  // no gradient
            squares[column] = kDecay * squares[column] + (1.0f - kDecay) * square;
            ++counts[column];
            const double unbiased = squares[column] / (1.0 - std::pow(double{kDecay}, counts[column]));
            level.subtract(projection + column * n_bits, gradient.data(),
                           static_cast<float>(size / std::sqrt(unbiased)), n_bits);
        }
    });
}

}  // namespace bitclass
