/* Cases in processes apart, so that one that crashes or hangs is one case. */
#ifndef TESTS_CONFORMANCE_APART_H
#define TESTS_CONFORMANCE_APART_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* One process takes so many cases, if none ends it: to begin and to leave one, with the search for
 * leaks of a sanitizer, takes longer than a case does. */
enum { APART = 16 };

/* The next case may take so many seconds of processor time, whatever else the machine does. */
static void apart_limit(unsigned seconds) {
    struct rusage used;
    struct rlimit most;
    if (getrusage(RUSAGE_SELF, &used) || getrlimit(RLIMIT_CPU, &most)) exit(2);
    most.rlim_cur = (rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1 + seconds;
    if (setrlimit(RLIMIT_CPU, &most)) exit(2); /* SIGXCPU */
}

static const char *apart_end(int status) {
    if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
    return "crash, or a leak of this case or of one shortly before";
}

/* fn(folder) for each. One that ends its process is told to `ended`, with how, and the next ones
 * get a process of their own; so is the last of those whose process has a bad end. */
static void run_apart(void (*fn)(const char *folder), char *const *folder, int n, unsigned seconds,
                      void (*ended)(const char *folder, const char *how)) {
    int *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (done == MAP_FAILED) exit(2);
    for (*done = 0; *done < n;) {
        const int first = *done, end = n - first < APART ? n : first + APART;
        int status;
        fflush(stdout);
        const pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            exit(2);
        }
        if (pid == 0) {
            for (; *done < end; ++*done) {
                apart_limit(seconds);
                fn(folder[*done]);
                fflush(stdout);
            }
            exit(0);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        if (status == 0 && *done == end) continue;
        ended(folder[*done < end ? *done : end - 1], apart_end(status));
        if (*done < end) ++*done;
    }
    munmap(done, sizeof *done);
}

#endif
