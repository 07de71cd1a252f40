/* Kernels that no group stands for: copies, marks and counts around loops, branches and states. */
#ifndef FUSION_SMALL_H
#define FUSION_SMALL_H

#include "fusion/body/body.h"

typedef struct Small {
    Group g;
    Body b;
} Small;

void small_begin(Fuse *f, Small *s);
KVal small_load(Small *s, uint32_t from, Expr at);
void small_end(Fuse *f, Small *s, const char *what); /* appends its step */
/* All of buffer `from` into `to`, element for element. */
void small_copy(Fuse *f, uint32_t from, uint32_t to, const char *what);
/* The same of outer*size*inner elements, where `to` has room for more than size. */
void small_copy_rows(Fuse *f, uint32_t from, uint32_t to, const Expr *shape, Expr room);

#endif
