// tests/native/test_threads.py tests forks and signals, which emulators and ThreadSanitizer do not support.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "../pool.hpp"
#include "check.hpp"

namespace bitclass::tests {
namespace {

void check_every_chunk_runs_once(std::size_t n_chunks, int n_threads) {
    std::vector<int> runs(n_chunks, 0);
    parallel_for(n_chunks, n_threads, [&](std::size_t chunk) { ++runs[chunk]; });
    for (const int count : runs) CHECK(count == 1);
}

void check_exceptions_reach_the_caller() {
    bool caught = false;
    try {
        parallel_for(100, 4, [](std::size_t chunk) {
            if (chunk % 7 == 3) throw std::runtime_error("chunk");
        });
    } catch (const std::runtime_error&) {
        caught = true;
    }
    CHECK(caught);
}

void check_calls_may_be_nested() {
    std::atomic<int> runs{0};
    parallel_for(8, 4, [&](std::size_t) { parallel_for(8, 4, [&](std::size_t) { ++runs; }); });
    CHECK(runs == 64);
}

void check_many_callers_at_once() {
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 8; ++caller) {
        callers.emplace_back([caller] {
            for (int round = 0; round < 50; ++round) check_every_chunk_runs_once(17, 1 + (caller + round) % 5);
        });
    }
    for (auto& caller : callers) caller.join();
}

}  // namespace

void test_pool() {
    for (const std::size_t n_chunks : {0, 1, 2, 100}) {
        for (const int n_threads : {1, 2, 3, 7}) check_every_chunk_runs_once(n_chunks, n_threads);
    }
    check_exceptions_reach_the_caller();
    check_calls_may_be_nested();
    check_many_callers_at_once();
}

}  // namespace bitclass::tests
