/* Which rows of the data come next: every row once an epoch, each epoch in an order of its own that
 * follows from the seed. (epoch, position) is all that has to be kept to go on exactly. */
#ifndef TRAIN_DATA_ORDER_H
#define TRAIN_DATA_ORDER_H

#include "runtime/error.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct Order {
    uint64_t n, seed;
    bool shuffle;             /* else as they lie */
    uint64_t epoch, position; /* of the next row; position < n */
    uint64_t *rows;           /* of the epoch `made` */
    uint64_t made;
} Order;

/* n > 0 rows. */
GRAPHC_MUST_USE graphc_status order_init(Order *o, uint64_t n, uint64_t seed, bool shuffle,
                                         ErrorText e);
/* GRAPHC_INVALID: there is no such position. */
GRAPHC_MUST_USE graphc_status order_seek(Order *o, uint64_t epoch, uint64_t position, ErrorText e);
/* The next rows; a batch may begin in one epoch and end in the next. */
void order_take(Order *o, uint64_t *rows, uint32_t count);
/* What order_take gives next, or NULL where an epoch ends before: a hint, which costs nothing. */
const uint64_t *order_next(const Order *o, uint32_t count);
void order_free(Order *o);

#endif
