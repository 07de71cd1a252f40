/* A case in a process of its own, so that one that crashes or hangs is one case. */
#ifndef TESTS_CONFORMANCE_APART_H
#define TESTS_CONFORMANCE_APART_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What waitpid() says of a process that ran fn(folder) for at most so many seconds of processor
 * time, whatever else the machine does, and ended with what it gave. */
static int run_apart(int (*fn)(const char *folder), const char *folder, unsigned seconds) {
    int status;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid == 0) {
        const struct rlimit most = {seconds, seconds + 5}; /* SIGXCPU, SIGKILL */
        if (setrlimit(RLIMIT_CPU, &most)) exit(2);
        exit(fn(folder));
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

#endif
