// Runs the kernel tests at every SIMD level this machine has; exits with 1 at the first failure.
// --without-fork leaves out the test that forks a process with threads, which emulators cannot do.
#include <cstring>

#include "../dispatch.hpp"
#include "check.hpp"

int main(int n_arguments, char** arguments) {
    using namespace bitclass;
    tests::test_pool(n_arguments < 2 || std::strcmp(arguments[1], "--without-fork") != 0);
    tests::test_ngrams();
    for (const Level& level : available_levels()) {
        use_level(level.name);
        tests::test_search();
        tests::test_encode();
        tests::test_sparse();
        tests::test_training();
        std::printf("%s: ok\n", level.name);
    }
    return 0;
}
