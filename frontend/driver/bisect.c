#include "frontend/driver/bisect.h"

graphc_status bisect(uint32_t right, uint32_t wrong, BisectAsk ask, void *ctx, uint32_t *first) {
    while (wrong > right + 1) {
        uint32_t n = right + (wrong - right) / 2;
        bool is_wrong = false;
        graphc_status s = ask(ctx, n, &is_wrong);
        if (s != GRAPHC_OK) return s;
        *(is_wrong ? &wrong : &right) = n;
    }
    *first = wrong;
    return GRAPHC_OK;
}
