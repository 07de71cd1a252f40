#include "frontend/driver/cli/machine/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 1024

/* The sum of the lines of /proc/meminfo that begin so, in bytes. */
static uint64_t machine_memory(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t sum = 0;
    unsigned long long kb;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu", &kb) == 1 ||
            sscanf(line, "SwapFree: %llu", &kb) == 1)
            sum += (uint64_t)kb << 10;
    if (f) fclose(f);
    return sum ? sum : UINT64_MAX;
}

/* A limit of cgroup v2: a number, or "max". */
static uint64_t group_memory(const char *path) {
    FILE *f = fopen(path, "re");
    unsigned long long bytes;
    bool limited = f && fscanf(f, "%llu", &bytes) == 1;
    if (f) fclose(f);
    return limited ? bytes : UINT64_MAX;
}

/* In a container the group's own path may not be there; its root then is the container's group. */
static uint64_t own_group_memory(void) {
    char line[PATH_BYTES], path[PATH_BYTES + 64];
    FILE *f = fopen("/proc/self/cgroup", "re");
    uint64_t least = group_memory("/sys/fs/cgroup/memory.max");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", line + 3);
        uint64_t own = group_memory(path);
        if (own < least) least = own;
    }
    if (f) fclose(f);
    return least;
}

uint64_t memory_available(void) {
    uint64_t machine = machine_memory(), group = own_group_memory();
    return machine < group ? machine : group;
}
