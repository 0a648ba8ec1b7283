// Steps of refinement on mini-batches of rows: losses, their gradients, and Adam. Products are those of BLAS; rows, or
// rows of a matrix of parameters, are divided into parts that do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitclass {

struct ClassLoss {
    const float* weights;  // (n_classes, n_bits)
    const float* bias;     // (n_classes), in the units of the class scores
    const float* log_shares;
    float sharpness[2];  // of rows scored by sign, and by tanh
    std::size_t n_signs;  // number of rows scored by sign
    std::size_t n_classes;
    std::size_t n_bits;
};

// The softmax cross-entropy of rows: the first n_signs are scored by the signs of their bit scores, the others by tanh.
// Straight-through: the derivative of tanh also replaces that of sign.
//
//   scores   (m, n_bits), overwritten by the gradient with respect to them
//   labels   (m), factors (m): class and weight of each row
//   inputs   (m, n_bits): sign or tanh of the scores
//   slopes   (m, n_classes): gradient with respect to the class scores
//
// Returns the loss. Throws std::invalid_argument for a label that is no class.
double class_gradients(const ClassLoss& loss, float* scores, std::size_t m, const std::intptr_t* labels,
                       const float* factors, float* inputs, float* slopes, int n_threads);

// Logarithms of the probabilities (m) of the labels by the softmax of scores (m, n_classes) * sharpness + shifts.
// Throws std::invalid_argument for a label that is no class.
void log_probabilities(const float* scores, std::size_t m, std::size_t n_classes, const std::intptr_t* labels,
                       const float* shifts, float sharpness, float* out, int n_threads);

// One step of Adam.
struct AdamStep {
    float rate;      // with the bias corrections of both moments
    float decay[2];  // of both moments
    float tiny;
};

// Moves values (k, r) against the gradient left' right, for left (m, k) and right (m, r). If signs (k, r) are given,
// values are clipped to [-1, 1], and their signs are written there.
void adam_step(const AdamStep& step, const float* left, const float* right, std::size_t m, std::size_t k,
               std::size_t r, float* values, float* means, float* squares, float* signs, int n_threads);

// The loops of one SIMD level. Each lane is computed alike at every level, and sums are over 16 lanes.
struct RefinementKernels {
    void (*tanh)(float* values, std::size_t n);  // in place
    void (*signs)(const float* values, std::size_t n, float* signs);
    // Class scores to slopes, in place; returns the probability of the label.
    float (*slopes)(float* scores, const float* shifts, std::size_t n, float sharpness, float factor,
                    std::size_t label);
    // Logarithm of the probability of the label.
    float (*log_probability)(const float* scores, const float* shifts, std::size_t n, float sharpness,
                             std::size_t label);
    // gradient * (1 - values^2), in place of values
    void (*by_tanh)(const float* gradient, float* values, std::size_t n);
    void (*adam)(const AdamStep& step, const float* gradient, float* values, float* means, float* squares,
                 std::size_t n);
    void (*clip)(float* values, std::size_t n);
};

}  // namespace bitclass
