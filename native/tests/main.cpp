// Runs the kernel tests at every SIMD level this machine has; exits with 1 at the first failure.
#include "../dispatch.hpp"
#include "check.hpp"

int main() {
    using namespace bitclass;
    tests::test_pool();
    tests::test_ngrams();
    for (const Level& level : available_levels()) {
        use_level(level.name);
        use_products(level.kernels.products);
        tests::test_search();
        tests::test_encode();
        tests::test_sparse();
        tests::test_class_sums();
        tests::test_products();
        std::printf("%s: ok\n", level.name);
    }
    return 0;
}
