// The inner loops of refinement: see refinement.hpp.

// Sums and loops are over blocks of 16 lanes at every level, so that results are the same.
constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlockVectors = kLanes / kFloats;

struct Block {
    Floats part[kBlockVectors];
};

inline Block block_of(float value) {
    Block block;
    for (Floats& part : block.part) part = value - Floats{};
    return block;
}

// The first n floats of a block; the others are `rest`.
inline Block load_block(const float* from, std::size_t n, float rest = 0.0f) {
    Block block = block_of(rest);
    if (n < kLanes) {
        std::memcpy(&block, from, n * sizeof(float));
    } else {
        std::memcpy(&block, from, sizeof block);
    }
    return block;
}

inline void store_block(float* to, const Block& block, std::size_t n) {
    if (n < kLanes) {
        std::memcpy(to, &block, n * sizeof(float));
    } else {
        std::memcpy(to, &block, sizeof block);
    }
}

template <class Each>
inline void each_part(const Each& each) {
    for (std::size_t part = 0; part < kBlockVectors; ++part) each(part);
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// exp(x) for x <= 0; below -87 it is that of -87. The relative error is below 2e-7.
inline Floats exp_of(Floats x) {
    constexpr float kRound = 12582912.0f;  // adding it rounds to an integer
    x = larger(x, -87.0f - Floats{});
    const Floats n = (x * 1.44269504f + kRound) - kRound;
    Floats rest = x - n * 0.693359375f;  // log(2) in two parts
    rest = rest - n * -2.12194440e-4f;
    Floats value = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    value = value * rest + 8.3334519073e-3f;
    value = value * rest + 4.1665795894e-2f;
    value = value * rest + 1.6666665459e-1f;
    value = value * rest + 5.0000001201e-1f;
    value = value * (rest * rest) + rest + 1.0f;
    const Integers power = (__builtin_convertvector(n, Integers) + 127) << 23;
    return value * (Floats)power;
}

inline Floats tanh_of(Floats x) {
    const Floats negative = -x;
    const Floats e = exp_of(-2.0f * larger(x, negative));
    const Floats value = (1.0f - e) / (1.0f + e);
    return x < 0.0f ? -value : value;
}

inline Floats sign_of(Floats x) { return x >= 0.0f ? 1.0f - Floats{} : -1.0f - Floats{}; }

// to = function(from) for n floats.
template <class Function>
inline void transform(const float* from, std::size_t n, float* to, const Function& function) {
    for (std::size_t at = 0; at < n; at += kLanes) {
        Block block = load_block(from + at, n - at);
        each_part([&](std::size_t part) { block.part[part] = function(block.part[part]); });
        store_block(to + at, block, n - at);
    }
}

void tanh_in_place(float* values, std::size_t n) { transform(values, n, values, tanh_of); }
void signs_of(const float* values, std::size_t n, float* signs) { transform(values, n, signs, sign_of); }
void clip(float* values, std::size_t n) {
    transform(values, n, values, [](Floats x) {
        x = x > 1.0f ? 1.0f - Floats{} : x;
        return x < -1.0f ? -1.0f - Floats{} : x;
    });
}

inline float largest_lane(const Block& block) {
    float lanes[kLanes];
    std::memcpy(lanes, &block, sizeof lanes);
    float most = lanes[0];
    for (const float lane : lanes) most = lane > most ? lane : most;
    return most;
}

inline float sum_of_lanes(const Block& block) {
    float lanes[kLanes];
    std::memcpy(lanes, &block, sizeof lanes);
    float total = 0.0f;
    for (const float lane : lanes) total += lane;
    return total;
}

constexpr float kLowest = -3e38f;

float log_probability(const float* scores, const float* shifts, std::size_t n, float sharpness, std::size_t label) {
    Block highest = block_of(kLowest), sums = block_of(0.0f);
    const auto logits = [&](std::size_t at) {
        Block block = load_block(scores + at, n - at);
        const Block shift = load_block(shifts + at, n - at, kLowest);
        each_part([&](std::size_t part) { block.part[part] = block.part[part] * sharpness + shift.part[part]; });
        return block;
    };
    for (std::size_t at = 0; at < n; at += kLanes) {
        const Block block = logits(at);
        each_part([&](std::size_t part) { highest.part[part] = larger(highest.part[part], block.part[part]); });
    }
    const float most = largest_lane(highest);
    for (std::size_t at = 0; at < n; at += kLanes) {
        const Block block = logits(at);
        each_part([&](std::size_t part) { sums.part[part] += exp_of(block.part[part] - most); });
    }
    return scores[label] * sharpness + shifts[label] - most - __builtin_logf(sum_of_lanes(sums));
}

float slopes(float* scores, const float* shifts, std::size_t n, float sharpness, float factor, std::size_t label) {
    Block highest = block_of(kLowest);
    for (std::size_t at = 0; at < n; at += kLanes) {
        Block block = load_block(scores + at, n - at);
        const Block shift = load_block(shifts + at, n - at, kLowest);
        each_part([&](std::size_t part) {
            block.part[part] = block.part[part] * sharpness + shift.part[part];
            highest.part[part] = larger(highest.part[part], block.part[part]);
        });
        store_block(scores + at, block, n - at);
    }
    const float most = largest_lane(highest);
    Block sums = block_of(0.0f);
    for (std::size_t at = 0; at < n; at += kLanes) {
        Block block = load_block(scores + at, n - at, kLowest);
        each_part([&](std::size_t part) {
            block.part[part] = exp_of(block.part[part] - most);
            sums.part[part] += block.part[part];
        });
        store_block(scores + at, block, n - at);
    }
    const float total = sum_of_lanes(sums);
    const float probability = scores[label] / total, size = sharpness * factor, scale = size / total;
    transform(scores, n, scores, [scale](Floats x) { return x * scale; });
    scores[label] -= size;
    return probability;
}

void by_tanh(const float* gradient, float* values, std::size_t n) {
    for (std::size_t at = 0; at < n; at += kLanes) {
        const Block by = load_block(gradient + at, n - at);
        Block block = load_block(values + at, n - at);
        each_part([&](std::size_t part) {
            block.part[part] = by.part[part] - by.part[part] * (block.part[part] * block.part[part]);
        });
        store_block(values + at, block, n - at);
    }
}

void adam(const AdamStep& step, const float* __restrict gradient, float* __restrict values, float* __restrict means,
          float* __restrict squares, std::size_t n) {
    const float keep_mean = step.decay[0], keep_square = step.decay[1], rate = step.rate, tiny = step.tiny;
    const float more_mean = 1.0f - keep_mean, more_square = 1.0f - keep_square;
    for (std::size_t i = 0; i < n; ++i) {
        const float mean = keep_mean * means[i] + more_mean * gradient[i];
        const float square = keep_square * squares[i] + more_square * (gradient[i] * gradient[i]);
        means[i] = mean;
        squares[i] = square;
        values[i] -= rate * (mean / (__builtin_sqrtf(square) + tiny));
    }
}

constexpr RefinementKernels kRefinementKernels = {&tanh_in_place, &signs_of, &slopes, &log_probability,
                                                  &by_tanh, &adam, &clip};
