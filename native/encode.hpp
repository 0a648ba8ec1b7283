// Features to packed codes: the hash function sign(P'x + t).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.hpp"
#include "search.hpp"

namespace bitclass {

// Half-precision floats, for which C++17 has no type.
struct Half {
    std::uint16_t bits;
};

// Rows of features in NumPy's memory; each row is contiguous.
struct Features {
    enum class Type { float16, float32, float64 };
    const void* data;
    Type type;
    std::size_t n_rows;
    std::size_t n_features;
    std::ptrdiff_t row_stride;  // in bytes

    const void* row(std::size_t i) const {
        return static_cast<const char*>(data) + static_cast<std::ptrdiff_t>(i) * row_stride;
    }
};

// A projection quantised to int8, in panels of columns in the layout of a level's tiles.
struct Int8Panels {
    const void* weights;
    std::size_t n_features;
    std::size_t n_padded;  // number of features, padded with zeros
    std::size_t n_bits;
    // One per column, with padding: bits of columns past the last are never set.
    const std::int32_t* starts;  // initial values of the sums, which cancel the offset of the rows
    const double* thresholds;    // intercepts in units of the integer sums of a row with factor 1
    // One per feature, with padding, or null if rows are not standardised.
    const float* centre;
    const float* inverse_scale;
};

// Converts the sums of an int8 projection to activations: see simd/encode_loops.hpp. With padding, whose
// activations are 0.
struct Int8Activations {
    const float* steps;      // scale of each column
    const float* intercept;
    std::int8_t* out;        // rows of `stride` bytes, or null to compute codes only
    std::size_t stride;
};

// Implemented by each SIMD level.
struct EncodeKernels {
    // Codes of n rows of n_bits scores: a bit is set if scores[k] + intercept[k] >= 0. Returns the first row with a
    // non-finite score, or n.
    std::size_t (*pack)(const float* scores, std::size_t n, std::size_t n_bits, const float* intercept,
                        std::uint8_t* codes);
    // Activations of the scores, rows `stride` bytes apart, zeros past the last bit.
    void (*activate)(const float* scores, std::size_t n, std::size_t n_bits, const float* intercept,
                     std::int8_t* activations, std::size_t stride);

    // The int8 projection: its layout, with features and columns padded to multiples of a step, and the encoding of
    // rows [start, start + n), with int8_room bytes of scratch memory per padded feature. Encoding returns the first
    // of these rows, counted from start, with an entry that is not finite in float32, or n; such a row is encoded as
    // zeros.
    std::size_t int8_feature_step;
    std::size_t int8_column_step;
    std::size_t int8_weight_bytes;
    int int8_row_offset;
    std::size_t int8_room;
    void (*int8_lay_out)(const std::int8_t* weights, std::size_t n_features, std::size_t n_bits, void* panels);
    std::size_t (*int8_encode)(const Int8Panels& panels, const Features& features, std::size_t start, std::size_t n,
                               void* room, std::uint8_t* codes, const Int8Activations& activations);
};

// Rows that a thread takes at a time: a multiple of every level's tile.
constexpr std::size_t kEncodedRowsPerChunk = 96;

inline std::size_t packed_width(std::size_t n_bits) { return (n_bits + 7) / 8; }

// Encodes with eight-bit integers. encode_int8 of tests/native/reference.py defines the result.
class Int8Projection {
public:
    // weights: (n_features, n_bits) in [-127, 127]; thresholds: (n_bits,) finite; steps: (n_bits,) scale of each
    // column; centre, inverse_scale: (n_features,) or both null. n_features in [1, kMaxFeatures], n_bits >= 1.
    // Throws if weights, thresholds or sizes are out of range.
    Int8Projection(const std::int8_t* weights, std::size_t n_features, std::size_t n_bits, const double* thresholds,
                   const double* steps, const float* centre, const float* inverse_scale);

    // Codes are rows of packed_width(n_bits()) bytes. Both return the first row that is not finite in float32,
    // counted from the first encoded row, or the number of rows.
    std::size_t encode(const Features& features, std::uint8_t* codes, int n_threads) const;
    // Rows [start, start + n), on the calling thread.
    std::size_t encode_rows(const Features& features, std::size_t start, std::size_t n, std::uint8_t* codes,
                            const Int8Activations& activations = {}) const;
    // What encode_rows needs to write activations, in rows of `stride` bytes.
    Int8Activations activations(std::int8_t* out, std::size_t stride) const {
        return {steps_.data(), intercept_.data(), out, stride};
    }

    std::size_t n_features() const { return n_features_; }
    std::size_t n_bits() const { return n_bits_; }

    static constexpr std::size_t kMaxFeatures = 133000;  // times 127 * 127 stays below 2^31

private:
    Int8Panels panels() const;

    const EncodeKernels& kernels_;
    std::size_t n_features_;
    std::size_t n_bits_;
    std::size_t n_padded_;
    AlignedArray<std::uint8_t> weights_;
    AlignedArray<std::int32_t> starts_;
    AlignedArray<double> thresholds_;
    AlignedArray<float> steps_, intercept_;
    AlignedArray<float> centre_;
    AlignedArray<float> inverse_scale_;
};

// Encode and search, block by block, without an array of all codes. Returns the first row that is not
// finite in float32, or the number of rows.
std::size_t predict(const Int8Projection& projection, const HammingIndex& index, const Features& features, Found found,
                    int n_threads);

// The same, with the nearest classes ranked by real-valued codes, tanh(scores).
std::size_t predict_rescored(const Int8Projection& projection, const HammingIndex& index, const Features& features,
                             Rescoring rescoring, Found found, int n_threads);

// The same from scores, n rows of n_bits.
std::size_t rescore(const float* scores, std::size_t n, std::size_t n_bits, const float* intercept,
                    const HammingIndex& index, Rescoring rescoring, Found found, int n_threads);

}  // namespace bitclass
