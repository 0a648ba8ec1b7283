// Weighted sums of rows of a projection, and gradient steps of such rows.

constexpr std::size_t kVectors = 8;  // vectors of sums kept in registers

// V vectors of sums, from bit `first` on.
template <std::size_t V, class T>
void add_block(const SparseEntry* entries, std::size_t n_entries, const T* table, std::size_t n_bits, std::size_t first,
               float* sums) {
    Floats total[V] = {};
    for (std::size_t e = 0; e < n_entries; ++e) {
        const T* row = table + entries[e].place * n_bits + first;
        // The rows of a large projection are not in the cache.
        if (e + 4 < n_entries) {
            const T* later = table + entries[e + 4].place * n_bits + first;
            for (std::size_t at = 0; at < V * kFloats * sizeof(T); at += 64) {
                __builtin_prefetch(reinterpret_cast<const char*>(later) + at);
            }
        }
        const float value = entries[e].value;
        for (std::size_t v = 0; v < V; ++v) total[v] += value * floats_of(row + v * kFloats);
    }
    std::memcpy(sums + first, total, sizeof total);
}

template <class T>
void add_rows_of_table(const SparseEntry* entries, std::size_t n_entries, const T* table, std::size_t n_bits,
                       float* sums) {
    std::size_t bit = 0;
    for (; bit + kVectors * kFloats <= n_bits; bit += kVectors * kFloats) {
        add_block<kVectors>(entries, n_entries, table, n_bits, bit, sums);
    }
    for (; bit + kFloats <= n_bits; bit += kFloats) add_block<1>(entries, n_entries, table, n_bits, bit, sums);
    for (; bit < n_bits; ++bit) {
        float total = 0.0f;
        for (std::size_t e = 0; e < n_entries; ++e) {
            total += entries[e].value * static_cast<float>(table[entries[e].place * n_bits + bit]);
        }
        sums[bit] = total;
    }
}

void subtract(float* values, const float* gradient, float factor, std::size_t n_bits) {
    for (std::size_t bit = 0; bit < n_bits; ++bit) values[bit] -= factor * gradient[bit];
}

float mean_square(const float* gradient, std::size_t n_bits) {
    float lanes[16] = {};
    std::size_t bit = 0;
    for (; bit + 16 <= n_bits; bit += 16) {
        for (std::size_t lane = 0; lane < 16; ++lane) lanes[lane] += gradient[bit + lane] * gradient[bit + lane];
    }
    for (std::size_t lane = 0; bit < n_bits; ++bit, ++lane) lanes[lane] += gradient[bit] * gradient[bit];
    float total = 0.0f;
    for (const float lane : lanes) total += lane;
    return total / static_cast<float>(n_bits);
}

constexpr SparseKernels kSparseKernels = {&add_rows_of_table<float>, &add_rows_of_table<std::int8_t>, &subtract,
                                          &mean_square};
