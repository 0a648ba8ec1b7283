// A pool of worker threads shared by all kernels.
#pragma once

#include <cstddef>
#include <functional>

namespace bitclass {

// Calls run(chunk) once for each chunk in [0, n_chunks), on up to n_threads threads including the
// calling one, and returns when all calls have returned.
//
// - Chunks are assigned one by one, so their number and bounds should depend on the work alone, never
//   on n_threads: results are then the same for every thread count.
// - Calls may be concurrent and nested: a caller always works on its own chunks, whether or not a
//   worker is free to help.
// - After the first exception no more chunks are assigned, and the exception is rethrown here.
// - A forked child starts with its own pool.
// - The pool starts without workers, grows to the largest number that a call can use, and never
//   shrinks: idle workers sleep until the process ends.
// - Signals are blocked in workers, and left to the threads of the program.
void parallel_for(std::size_t n_chunks, int n_threads, const std::function<void(std::size_t)>& run);

// Number of chunks of chunk_size that cover n items.
inline std::size_t chunks_of(std::size_t n, std::size_t chunk_size) { return n / chunk_size + (n % chunk_size != 0); }

}  // namespace bitclass
