#include "frontend/driver/cli/bench/bench.h"
#include "runtime/base/cores.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

/* What stands behind "model name : " in /proc/cpuinfo. */
static const char *processor(Arena *a) {
    static const char key[] = "model name";
    const char *found = "unknown";
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, sizeof key - 1) != 0 || !colon) continue;
        colon += 1 + strspn(colon + 1, " \t");
        found = arena_strndup(a, colon, strcspn(colon, "\n"));
        break;
    }
    if (f) fclose(f);
    return found;
}

BenchMachine bench_machine(Arena *a) {
    struct utsname u;
    BenchMachine m = {processor(a), "unknown", cores_available()};
    if (uname(&u) == 0) m.system = arena_printf(a, "%s %s", u.sysname, u.release);
    return m;
}
