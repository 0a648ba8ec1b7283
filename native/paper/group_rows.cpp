// Groups rows with equal (label, code) pairs. Rows are ordered by label, and each label has its own hash table
// of codes, which fits into the cache if labels are many.
#include <algorithm>
#include <cstring>
#include <vector>

#include "../pool.hpp"
#include "../training.hpp"
#include "class_runs.hpp"
#include "paper.hpp"

namespace bitclass {
namespace {

constexpr std::size_t kRowsPerTask = 1 << 14;
// Number of codes whose slots are prefetched.
constexpr std::size_t kAhead = 16;

std::uint64_t hash_of(const std::uint8_t* code, std::size_t n_bytes) {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (std::size_t at = 0; at < n_bytes; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, code + at, std::min<std::size_t>(8, n_bytes - at));
        // Both halves of a 128-bit product, so that every bit of the word affects every bit of the hash.
        const unsigned __int128 product = static_cast<unsigned __int128>(hash ^ word) * 0xd6e8feb86659fd93;
        hash = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64) ^ at;
    }
    return hash * 0x9e3779b97f4a7c15;
}

struct LabelRun {
    std::size_t begin;  // positions in label order
    std::size_t end;
    std::size_t n_groups = 0;
    std::size_t first_group = 0;
};

class Grouping {
public:
    Grouping(const std::intptr_t* labels, PackedRows codes, std::intptr_t* inverse)
        : labels_(labels), codes_(codes), inverse_(inverse), order_(order_by_label(labels, codes.n)),
          first_rows_(codes.n) {
        for (std::size_t i = 0; i < codes.n; ++i) {
            if (i == 0 || labels_[row_at(i)] != labels_[row_at(i - 1)]) runs_.push_back({i, i});
            ++runs_.back().end;
        }
        for (std::size_t i = 0; i < runs_.size(); ++i) {
            if (tasks_.empty() || runs_[i].begin - runs_[tasks_.back()].begin >= kRowsPerTask) tasks_.push_back(i);
        }
        tasks_.push_back(runs_.size());
    }

    std::size_t run(std::intptr_t* first, int n_threads) {
        const std::size_t n_tasks = tasks_.size() - 1;
        parallel_for(n_tasks, n_threads, [&](std::size_t task) {
            std::vector<std::uint64_t> slots;
            for (std::size_t i = tasks_[task]; i < tasks_[task + 1]; ++i) group(runs_[i], slots);
        });
        std::size_t n_groups = 0;
        for (LabelRun& label : runs_) {
            label.first_group = n_groups;
            n_groups += label.n_groups;
        }
        parallel_for(n_tasks, n_threads, [&](std::size_t task) {
            for (std::size_t i = tasks_[task]; i < tasks_[task + 1]; ++i) {
                const LabelRun& label = runs_[i];
                std::copy_n(first_rows_.begin() + static_cast<std::ptrdiff_t>(label.begin), label.n_groups,
                            first + label.first_group);
                for (std::size_t at = label.begin; at < label.end; ++at) {
                    inverse_[row_at(at)] += static_cast<std::intptr_t>(label.first_group);
                }
            }
        });
        return n_groups;
    }

private:
    std::size_t row_at(std::size_t place) const { return order_.empty() ? place : order_[place]; }

    const std::uint8_t* code_of(std::size_t row) const { return codes_.codes + row * codes_.n_bytes; }

    // Numbers the groups of one label from 0, by first appearance. A slot holds the group's number
    // plus 1 in 40 bits, and 24 bits of the hash, which avoid most comparisons of unequal codes.
    void group(LabelRun& label, std::vector<std::uint64_t>& slots) {
        constexpr std::uint64_t kNumber = (std::uint64_t{1} << 40) - 1;
        std::size_t n_slots = 4;
        while (n_slots < 2 * (label.end - label.begin)) n_slots *= 2;
        slots.assign(n_slots, 0);
        const std::size_t mask = n_slots - 1;
        std::intptr_t* first_rows = first_rows_.data() + label.begin;
        std::uint64_t hashes[kAhead];
        for (std::size_t begin = label.begin; begin < label.end; begin += kAhead) {
            const std::size_t n = std::min(kAhead, label.end - begin);
            for (std::size_t i = 0; i < n; ++i) {
                if (begin + i + kAhead < label.end) __builtin_prefetch(code_of(row_at(begin + i + kAhead)));
                hashes[i] = hash_of(code_of(row_at(begin + i)), codes_.n_bytes);
                __builtin_prefetch(&slots[hashes[i] >> 24 & mask]);
            }
            for (std::size_t i = 0; i < n; ++i) {
                const std::size_t row = row_at(begin + i);
                const std::uint64_t tag = hashes[i] << 40;
                std::size_t at = hashes[i] >> 24 & mask;
                while (slots[at] != 0) {
                    const std::size_t number = (slots[at] & kNumber) - 1;
                    if ((slots[at] & ~kNumber) == tag && same(row, static_cast<std::size_t>(first_rows[number]))) break;
                    at = (at + 1) & mask;
                }
                if (slots[at] == 0) {
                    first_rows[label.n_groups] = static_cast<std::intptr_t>(row);
                    slots[at] = tag | ++label.n_groups;
                }
                inverse_[row] = static_cast<std::intptr_t>((slots[at] & kNumber) - 1);
            }
        }
    }

    bool same(std::size_t row, std::size_t other) const {
        return std::memcmp(code_of(row), code_of(other), codes_.n_bytes) == 0;
    }

    const std::intptr_t* labels_;
    PackedRows codes_;
    std::intptr_t* inverse_;
    std::vector<std::size_t> order_;
    std::vector<std::intptr_t> first_rows_;  // first row of each group; groups of a label start at its run.begin
    std::vector<LabelRun> runs_;
    std::vector<std::size_t> tasks_;  // first run of each task, and the number of runs
};

}  // namespace

std::size_t group_rows(const std::intptr_t* labels, PackedRows codes, std::intptr_t* first, std::intptr_t* inverse,
                       int n_threads) {
    return Grouping(labels, codes, inverse).run(first, n_threads);
}

}  // namespace bitclass
