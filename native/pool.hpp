// One small pool of worker threads for all kernels.
#pragma once

#include <cstddef>
#include <functional>

namespace bitclass {

// Calls run(chunk) once for each chunk in [0, n_chunks), on up to n_threads threads, of which the
// caller is one, and returns when all calls have returned.
//
// - Chunks are handed out one by one, so their number and bounds should depend on the work alone,
//   never on n_threads: then results are the same for every thread count.
// - Any number of threads may call at once, and a chunk may call again: a caller always works on
//   its own chunks, whether or not a worker is free to help.
// - The first exception of a chunk stops the handing out and is thrown here.
// - A forked child starts with a pool of its own.
// - The pool starts without workers, grows to the largest number that a call could use, less the
//   caller, and never shrinks: workers without work sleep until the process ends.
// - Workers take no signals, which are left to the threads of the program.
void parallel_for(std::size_t n_chunks, int n_threads, const std::function<void(std::size_t)>& run);

// How many chunks of chunk_size cover n items.
inline std::size_t chunks_of(std::size_t n, std::size_t chunk_size) { return n / chunk_size + (n % chunk_size != 0); }

}  // namespace bitclass
