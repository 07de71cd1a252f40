/* The whole unit-test vocabulary: a test program is a C file with TEST_MAIN. A failed check prints
 * its place and values and the program goes on, so that one run shows every failure; the exit
 * status is 1 if any check failed, 77 if the test skipped itself. */
#ifndef TESTS_UNIT_TEST_H
#define TESTS_UNIT_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_failures;

static inline bool test_report(bool ok, const char *file, int line, const char *what) {
    if (!ok) {
        test_failures++;
        fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    }
    return ok;
}

#define CHECK(cond) test_report((cond), __FILE__, __LINE__, #cond)

#define CHECK_EQ_I(a, b)                                                                           \
    do {                                                                                           \
        long long test_a_ = (long long)(a), test_b_ = (long long)(b);                              \
        if (!test_report(test_a_ == test_b_, __FILE__, __LINE__, #a " == " #b))                    \
            fprintf(stderr, "    %lld, expected %lld\n", test_a_, test_b_);                        \
    } while (0)

#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *test_a_ = (a), *test_b_ = (b);                                                 \
        if (!test_report(strcmp(test_a_, test_b_) == 0, __FILE__, __LINE__, #a " is " #b))         \
            fprintf(stderr, "    \"%s\"\n    expected \"%s\"\n", test_a_, test_b_);                \
    } while (0)

/* |a - b| <= tol, or both NaN, or equal infinities. */
#define CHECK_NEAR(a, b, tol)                                                                      \
    do {                                                                                           \
        double test_a_ = (a), test_b_ = (b);                                                       \
        bool test_ok_ = (isnan(test_a_) && isnan(test_b_)) || test_a_ == test_b_ ||                \
                        fabs(test_a_ - test_b_) <= (tol);                                          \
        if (!test_report(test_ok_, __FILE__, __LINE__, #a " near " #b))                            \
            fprintf(stderr, "    %.17g, expected %.17g\n", test_a_, test_b_);                      \
    } while (0)

/* Of a long list of cases, case i: all of them with GRAPHC_TEST_ALL in the environment
 * (tests.cmake: the test's entry in the full set), one of `every` else. */
static inline bool test_takes(size_t i, size_t every) {
    return i % every == 0 || getenv("GRAPHC_TEST_ALL");
}

#define TEST_SKIP(why)                                                                             \
    do {                                                                                           \
        printf("skipped: %s\n", (why));                                                            \
        exit(77);                                                                                  \
    } while (0)

#define TEST_MAIN                                                                                  \
    static void test_main(void);                                                                   \
    int main(void) {                                                                               \
        test_main();                                                                               \
        if (test_failures) fprintf(stderr, "%d checks failed\n", test_failures);                   \
        return test_failures != 0;                                                                 \
    }                                                                                              \
    static void test_main(void)

#endif
