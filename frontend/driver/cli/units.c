#include "frontend/driver/cli/units.h"

#include <math.h>

/* Digits behind the point that leave three in all. */
static int decimals(double v) {
    v = fabs(v);
    return v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
}

const char *unit_count(Arena *a, double n, const char *what) {
    static const char *const unit[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;
    for (; fabs(n) >= 999.5 && i + 1 < sizeof unit / sizeof *unit; i++) n /= 1000;
    int digits = i == 0 && n == floor(n) ? 0 : decimals(n);
    return arena_printf(a, "%.*f %s%s", digits, n, unit[i], what);
}

const char *unit_bytes(Arena *a, double bytes) {
    return unit_count(a, bytes, "B");
}

const char *unit_seconds(Arena *a, double s) {
    static const struct {
        double of;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof *units && fabs(s) < 0.9995 * units[i].of) i++;
    double v = s / units[i].of;
    return arena_printf(a, "%.*f %s", decimals(v), v, units[i].name);
}
