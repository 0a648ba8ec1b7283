#include "encode.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.hpp"
#include "pool.hpp"

namespace bitclass {
namespace {

// Scratch memory, kept per thread so that chunks do not wait for new pages.
void* thread_room(std::size_t bytes) {
    thread_local AlignedArray<std::uint8_t> room;
    if (room.size() < bytes) room = AlignedArray<std::uint8_t>(bytes);
    return room.data();
}

// Calls visit(start, n) for chunks of rows, which returns the first bad row of its chunk, or n. Returns
// the first bad row of all, or n_rows.
template <class Visit>
std::size_t first_bad_row(std::size_t n_rows, int n_threads, Visit visit) {
    std::atomic<std::size_t> first{n_rows};
    parallel_for(chunks_of(n_rows, kEncodedRowsPerChunk), n_threads, [&](std::size_t chunk) {
        const std::size_t start = chunk * kEncodedRowsPerChunk;
        const std::size_t n = std::min(kEncodedRowsPerChunk, n_rows - start);
        const std::size_t bad = visit(start, n);
        if (bad == n) return;
        std::size_t seen = first.load();
        while (start + bad < seen && !first.compare_exchange_weak(seen, start + bad)) {
        }
    });
    return first.load();
}

}  // namespace

Int8Projection::Int8Projection(const std::int8_t* weights, std::size_t n_features, std::size_t n_bits,
                               const double* thresholds, const double* steps, const float* centre,
                               const float* inverse_scale)
    : kernels_(kernels().encode), n_features_(n_features), n_bits_(n_bits) {
    if (n_features == 0 || n_features > kMaxFeatures) {
        throw std::invalid_argument("projection: int8 precision supports 1 to " + std::to_string(kMaxFeatures) +
                                    " features, found " + std::to_string(n_features));
    }
    if (n_bits == 0) throw std::invalid_argument("projection: expected at least 1 bit");
    const std::int8_t* const weights_end = weights + n_features * n_bits;
    if (std::find(weights, weights_end, std::int8_t{-128}) != weights_end) {
        throw std::invalid_argument("weights: expected integers from -127 to 127, found -128");
    }
    if (!std::all_of(thresholds, thresholds + n_bits, [](double threshold) { return std::isfinite(threshold); })) {
        throw std::invalid_argument("thresholds: expected finite numbers only");
    }
    n_padded_ = chunks_of(n_features, kernels_.int8_feature_step) * kernels_.int8_feature_step;
    const std::size_t n_columns = chunks_of(n_bits, kernels_.int8_column_step) * kernels_.int8_column_step;
    weights_ = AlignedArray<std::uint8_t>(n_padded_ * n_columns * kernels_.int8_weight_bytes);
    kernels_.int8_lay_out(weights, n_features, n_bits, weights_.data());
    starts_ = AlignedArray<std::int32_t>(n_columns);
    thresholds_ = AlignedArray<double>(n_columns);
    for (std::size_t k = 0; k < n_columns; ++k) thresholds_[k] = k < n_bits ? thresholds[k] : -1.0;
    steps_ = AlignedArray<float>(n_columns);
    intercept_ = AlignedArray<float>(n_columns);
    for (std::size_t k = 0; k < n_bits; ++k) {
        steps_[k] = static_cast<float>(steps[k]);
        intercept_[k] = static_cast<float>(thresholds[k] * steps[k]);
    }
    // Unsigned, because intermediate sums may wrap around.
    std::vector<std::uint32_t> sums(n_bits, 0);
    for (std::size_t j = 0; j < n_features; ++j) {
        for (std::size_t k = 0; k < n_bits; ++k) sums[k] += static_cast<std::uint32_t>(weights[j * n_bits + k]);
    }
    for (std::size_t k = 0; k < n_bits; ++k) {
        starts_[k] = static_cast<std::int32_t>(0u - static_cast<std::uint32_t>(kernels_.int8_row_offset) * sums[k]);
    }
    if (centre != nullptr) {
        centre_ = AlignedArray<float>(n_padded_);
        inverse_scale_ = AlignedArray<float>(n_padded_);
        std::copy_n(centre, n_features, centre_.data());
        std::copy_n(inverse_scale, n_features, inverse_scale_.data());
    }
}

Int8Panels Int8Projection::panels() const {
    return {weights_.data(), n_features_,        n_padded_,      n_bits_,
            starts_.data(),  thresholds_.data(), centre_.data(), inverse_scale_.data()};
}

std::size_t Int8Projection::encode_rows(const Features& features, std::size_t start, std::size_t n, std::uint8_t* codes,
                                        const Int8Activations& activations) const {
    const Int8Panels prepared = panels();
    return kernels_.int8_encode(prepared, features, start, n, thread_room(kernels_.int8_room * n_padded_), codes,
                                activations);
}

std::size_t Int8Projection::encode(const Features& features, std::uint8_t* codes, int n_threads) const {
    return first_bad_row(features.n_rows, n_threads, [&](std::size_t start, std::size_t n) {
        return encode_rows(features, start, n, codes + start * packed_width(n_bits_));
    });
}

std::size_t predict(const Int8Projection& projection, const HammingIndex& index, const Features& features, Found found,
                    int n_threads) {
    const std::size_t width = packed_width(projection.n_bits());
    return first_bad_row(features.n_rows, n_threads, [&](std::size_t start, std::size_t rows) {
        std::vector<std::uint8_t> codes(rows * width);
        const std::size_t bad = projection.encode_rows(features, start, rows, codes.data());
        index.nearest(codes.data(), rows, found.from(start), 1);
        return bad;
    });
}

std::size_t predict_rescored(const Int8Projection& projection, const HammingIndex& index, const Features& features,
                             Rescoring rescoring, Found found, int n_threads) {
    const std::size_t width = packed_width(projection.n_bits());
    const std::size_t stride = activation_stride(width);
    return first_bad_row(features.n_rows, n_threads, [&](std::size_t start, std::size_t rows) {
        std::vector<std::uint8_t> codes(rows * width);
        thread_local AlignedArray<std::int8_t> active;
        if (active.size() < rows * stride) active = AlignedArray<std::int8_t>(kEncodedRowsPerChunk * stride);
        // Columns past the last panel are never written.
        std::fill_n(active.data(), rows * stride, std::int8_t{0});
        const std::size_t bad =
            projection.encode_rows(features, start, rows, codes.data(), projection.activations(active.data(), stride));
        index.rescored(codes.data(), active.data(), rows, rescoring, found.from(start * rescoring.k));
        return bad;
    });
}

std::size_t rescore(const float* scores, std::size_t n, std::size_t n_bits, const float* intercept,
                    const HammingIndex& index, Rescoring rescoring, Found found, int n_threads) {
    const EncodeKernels& level = kernels().encode;
    const std::size_t stride = activation_stride(packed_width(n_bits));
    return first_bad_row(n, n_threads, [&](std::size_t start, std::size_t rows) {
        const float* const values = scores + start * n_bits;
        std::vector<std::uint8_t> codes(rows * packed_width(n_bits));
        std::vector<std::int8_t> active(rows * stride);
        const std::size_t bad = level.pack(values, rows, n_bits, intercept, codes.data());
        level.activate(values, rows, n_bits, intercept, active.data(), stride);
        index.rescored(codes.data(), active.data(), rows, rescoring, found.from(start * rescoring.k));
        return bad;
    });
}

}  // namespace bitclass
