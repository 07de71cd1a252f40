#include "runtime/train/data/order.h"
#include "runtime/train/data/random.h"
#include <stdlib.h>

static void make(Order *o) {
    uint64_t state = o->seed;
    for (uint64_t i = 0; !o->shuffle && i < o->n; i++) o->rows[i] = i;
    if (o->shuffle)
        random_order(o->rows, o->n,
                     random_next(&state) ^ (o->epoch * UINT64_C(0xd1342543de82ef95)));
    o->made = o->epoch;
}

graphc_status order_init(Order *o, uint64_t n, uint64_t seed, bool shuffle, ErrorText e) {
    *o = (Order){.n = n, .seed = seed, .shuffle = shuffle};
    if (!n) return error_set(e, GRAPHC_USAGE, "an order of no rows");
    o->rows = reallocarray(NULL, n, sizeof *o->rows);
    if (!o->rows) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for the order of rows");
    make(o);
    return GRAPHC_OK;
}

graphc_status order_seek(Order *o, uint64_t epoch, uint64_t position, ErrorText e) {
    if (position >= o->n)
        return error_set(e, GRAPHC_INVALID, "position %llu in data of %llu rows",
                         (unsigned long long)position, (unsigned long long)o->n);
    o->epoch = epoch;
    o->position = position;
    if (o->made != epoch) make(o);
    return GRAPHC_OK;
}

void order_take(Order *o, uint64_t *rows, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (o->made != o->epoch) make(o);
        rows[i] = o->rows[o->position++];
        if (o->position < o->n) continue;
        o->position = 0;
        o->epoch++;
    }
}

const uint64_t *order_next(const Order *o, uint32_t count) {
    return o->made == o->epoch && count <= o->n - o->position ? o->rows + o->position : NULL;
}

void order_free(Order *o) {
    free(o->rows);
    *o = (Order){0};
}
