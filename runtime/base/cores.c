#include "runtime/base/cores.h"
#include "runtime/base/arena.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024

/* The beginning of a small file as a string; these files have no size and cannot be mapped. */
static bool read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

static bool read_group(const char *folder, const char *file, char *text, size_t size) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_text(path, text, size);
}

static uint32_t whole_cores(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return UINT32_MAX;
    long long n = quota / period;
    return n < 1 ? 1 : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static uint32_t group_quota(const char *folder, bool v2) {
    char text[64];
    long long quota, period;
    if (v2) {
        if (!read_group(folder, "cpu.max", text, sizeof text)) return UINT32_MAX;
        bool limited = sscanf(text, "%lld %lld", &quota, &period) == 2; /* or "max PERIOD" */
        return limited ? whole_cores(quota, period) : UINT32_MAX;
    }
    if (!read_group(folder, "cpu.cfs_quota_us", text, sizeof text) ||
        sscanf(text, "%lld", &quota) != 1)
        return UINT32_MAX;
    if (!read_group(folder, "cpu.cfs_period_us", text, sizeof text) ||
        sscanf(text, "%lld", &period) != 1)
        return UINT32_MAX;
    return whole_cores(quota, period);
}

/* The least of a group and all that it lies in. In a container the group's own path may not be
 * there; its root then is the container's group. */
static uint32_t path_quota(const char *mount, const char *group, bool v2) {
    char folder[PATH_BYTES];
    int n = snprintf(folder, sizeof folder, "%s%s%s", mount, v2 ? "" : "/cpu", group);
    if (n < 0 || (size_t)n >= sizeof folder) return UINT32_MAX;
    char *root = folder + strlen(mount) + (v2 ? 0 : strlen("/cpu"));
    uint32_t least = UINT32_MAX;
    for (;;) {
        uint32_t cores = group_quota(folder, v2);
        if (cores < least) least = cores;
        char *slash = strrchr(root, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

/* Is "cpu" in a list like "cpuset,cpu,cpuacct"? */
static bool has_cpu(const char *list) {
    for (const char *c = list; *c;) {
        size_t n = strcspn(c, ",");
        if (n == 3 && memcmp(c, "cpu", 3) == 0) return true;
        c += n + (c[n] == ',');
    }
    return false;
}

/* Lines are HIERARCHY:CONTROLLERS:PATH; v2 is hierarchy 0 without controllers. */
static uint32_t line_quota(char *line, const char *mount) {
    char *list = strchr(line, ':');
    char *group = list ? strchr(list + 1, ':') : NULL;
    if (!group) return UINT32_MAX;
    *list++ = *group++ = 0;
    bool v2 = strcmp(line, "0") == 0 && !*list;
    return v2 || has_cpu(list) ? path_quota(mount, group, v2) : UINT32_MAX;
}

uint32_t cores_of_quota(const char *groups, const char *mount) {
    char text[8192];
    uint32_t least = UINT32_MAX;
    if (!read_text(groups, text, sizeof text)) return least;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        uint32_t cores = line_quota(line, mount);
        if (cores < least) least = cores;
    }
    return least;
}

uint32_t cores_available(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    uint32_t cores = n < 1 ? 1 : (uint32_t)n;
    uint32_t quota = cores_of_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota < cores ? quota : cores;
}

uint32_t cores_threads(uint32_t asked) {
    const char *env = asked ? NULL : getenv("GRAPHC_THREADS");
    char *end = NULL;
    unsigned long n = env && *env >= '0' && *env <= '9' ? strtoul(env, &end, 10) : asked;
    if (end && *end) n = 0;
    return n == 0 ? cores_available() : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

int stack_thread(pthread_t *t, void *(*fn)(void *ctx), void *ctx) {
    pthread_attr_t attr;
    int error = pthread_attr_init(&attr);
    if (error) return error;
    error = pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (!error) error = pthread_create(t, &attr, fn, ctx);
    pthread_attr_destroy(&attr);
    return error;
}

typedef struct Call {
    void (*fn)(void *ctx);
    void *ctx;
    size_t wanted;
} Call;

static void *call(void *arg) {
    Call *c = arg;
    c->wanted = arena_guard(c->fn, c->ctx);
    return NULL;
}

size_t stack_guard(void (*fn)(void *ctx), void *ctx) {
    Call c = {.fn = fn, .ctx = ctx};
    pthread_t t;
    sigset_t all, before;
    if (stack_thread(&t, call, &c)) return STACK_BYTES;
    /* Signals are for the thread that works, which may hold them back. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_join(t, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return c.wanted;
}
