#include "pool.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace bitclass {
namespace {

// Prevents a mistaken thread count from exhausting the system.
constexpr std::size_t kMaxWorkers = 1024;
// How long an idle worker watches for the next job before it sleeps.
constexpr std::chrono::microseconds kWatch{50};

struct Job {
    const std::function<void(std::size_t)>& run;
    const std::size_t n_chunks;
    std::atomic<std::size_t> next{0};
    std::atomic<std::size_t> helpers_at_work{0};
    // Guarded by the pool's mutex, as are changes of helpers_at_work:
    std::size_t helpers_wanted = 0;
    std::exception_ptr error{};
    std::condition_variable helpers_left{};
};

// Blocks signals on this thread during its lifetime. Threads started meanwhile inherit this permanently:
// a handler of the program never runs on a worker, nor is a signal delivered to a worker instead of a
// thread that waits for it. Signals of faults remain unblocked, so that they can be reported.
class WithoutSignals {
#if !defined(_WIN32)  // where a handler runs on a thread of its own
public:
    WithoutSignals() {
        sigset_t blocked;
        sigfillset(&blocked);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&blocked, fault);
        pthread_sigmask(SIG_BLOCK, &blocked, &before_);
    }
    ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    WithoutSignals(const WithoutSignals&) = delete;
    WithoutSignals& operator=(const WithoutSignals&) = delete;

private:
    sigset_t before_;
#endif
};

class Pool {
public:
    void run(Job& job, std::size_t helpers) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            grow_to(std::min(helpers, kMaxWorkers));
            job.helpers_wanted = std::min(helpers, n_workers_);
            if (job.helpers_wanted > 0) {
                jobs_.push_back(&job);
                ++n_jobs_;
            }
        }
        for (std::size_t i = 0; i < helpers; ++i) work_arrived_.notify_one();
        work_on(job);
        std::unique_lock<std::mutex> lock(mutex_);
        // No more workers may join: the job is on the caller's stack.
        jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), &job), jobs_.end());
        lock.unlock();
        watch([&] { return job.helpers_at_work == 0; });
        lock.lock();
        job.helpers_left.wait(lock, [&] { return job.helpers_at_work == 0; });
    }

    void work_on(Job& job) {
        try {
            for (;;) {
                const std::size_t chunk = job.next.fetch_add(1, std::memory_order_relaxed);
                if (chunk >= job.n_chunks) return;
                job.run(chunk);
            }
        } catch (...) {
            job.next.store(job.n_chunks, std::memory_order_relaxed);
            std::lock_guard<std::mutex> lock(mutex_);
            if (!job.error) job.error = std::current_exception();
        }
    }

private:
    void grow_to(std::size_t n_workers) {
        if (n_workers_ >= n_workers) return;
        [[maybe_unused]] const WithoutSignals blocked{};
        try {
            for (; n_workers_ < n_workers; ++n_workers_) {
                std::thread([this] { serve(); }).detach();
            }
        } catch (const std::system_error&) {
            // The system has no more threads: existing workers and the caller do the work.
        }
    }

    [[noreturn]] void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            if (jobs_.empty()) {
                const std::size_t seen = n_jobs_;
                lock.unlock();
                watch([&] { return n_jobs_ != seen; });
                lock.lock();
            }
            work_arrived_.wait(lock, [this] { return !jobs_.empty(); });
            Job& job = *jobs_.front();
            ++job.helpers_at_work;
            if (--job.helpers_wanted == 0) jobs_.pop_front();
            lock.unlock();
            work_on(job);
            lock.lock();
            if (--job.helpers_at_work == 0) job.helpers_left.notify_one();
        }
    }

    // Waits a moment for the next job, or for the last helper: training has thousands of short ones in a row, and waking a sleeping thread
    // takes as long as its share of the work. Other threads that want the processor get it.
    template <class Done>
    static void watch(const Done& done) {
        const auto end = std::chrono::steady_clock::now() + kWatch;
        while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }

    std::mutex mutex_;
    std::atomic<std::size_t> n_jobs_{0};  // so far
    std::condition_variable work_arrived_;
    std::deque<Job*> jobs_;
    std::size_t n_workers_ = 0;
};

// Never deleted: sleeping workers may outlive all other objects of the process, and a forked child
// abandons the parent's pool, whose workers do not exist there.
std::atomic<Pool*> the_pool{nullptr};

Pool& pool() {
#if !defined(_WIN32)
    static const int watch_forks = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); });
    static_cast<void>(watch_forks);
#endif
    Pool* present = the_pool.load();
    if (present == nullptr) {
        Pool* fresh = new Pool;
        if (the_pool.compare_exchange_strong(present, fresh)) return *fresh;
        delete fresh;
    }
    return *present;
}

}  // namespace

void parallel_for(std::size_t n_chunks, int n_threads, const std::function<void(std::size_t)>& run) {
    const std::size_t threads = std::min(static_cast<std::size_t>(std::max(n_threads, 1)), n_chunks);
    if (threads <= 1) {
        for (std::size_t chunk = 0; chunk < n_chunks; ++chunk) run(chunk);
        return;
    }
    Job job{run, n_chunks};
    pool().run(job, threads - 1);
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace bitclass
