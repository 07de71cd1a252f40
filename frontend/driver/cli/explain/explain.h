/* What the files of `graphc explain` share: facts of a plan, put together. */
#ifndef FRONTEND_DRIVER_CLI_EXPLAIN_H
#define FRONTEND_DRIVER_CLI_EXPLAIN_H

#include "frontend/driver/cli/planview.h"

#include <jansson.h>

/* What a kernel moves and computes, and the time that the target's rates allow for it. */
typedef struct Bound {
    double bytes, flops, seconds; /* seconds: at least */
    bool memory;                  /* its bytes decide */
} Bound;

/* Of the row that has the target's name: a plan of another release may have one that is gone. */
const Machine *explain_machine(const PlanView *v, const PlanTarget *t);
Bound explain_bound(const PlanView *v, const PlanTarget *t, const PlanKernel *k);

/* The next line of *text, which moves on; NULL: there is none. */
const char *explain_line(Arena *a, const char **text);
/* A line of nodes without what follows it; *view: it is one that the kernel only looks through. */
const char *explain_node(Arena *a, const char *line, bool *view);
/* Of a line of nodes that no kernel covers: where its reason begins. */
const char *explain_reason(const char *line);
/* Does the line of n characters have the word, with nothing of a name beside it? */
bool explain_has_word(const char *line, size_t n, const char *word);
/* Is `node` one of the nodes in these lines: by its number, or by its name as a whole? */
bool explain_covers(Arena *a, const char *nodes, const char *node);

/* flow.c: which steps of a target read what others stored. Numbers are those of the target's steps.
 */
typedef VEC(uint32_t) StepList;
typedef struct Flow {
    uint32_t n;
    StepList *from; /* of each step, ascending: kernels whose stores it reads */
} Flow;
Flow flow_of(Arena *a, const PlanView *v, const PlanTarget *t);
/* The fewest steps that lead from one kernel to another, both included; 0: none do. */
uint32_t flow_path(const Flow *f, Arena *a, uint32_t from, uint32_t to, uint32_t **path);

/* why.c: a kernel's value that another reads from memory, as the compiler recorded it. */
typedef struct KernelsApart {
    const char *why, *bytes; /* why NULL: nothing was recorded. bytes: "" or a formula */
    const char *change;      /* what would change it; NULL: that is not known */
} KernelsApart;
KernelsApart explain_apart(Arena *a, const char *notes, const char *producer, const char *consumer);
/* Why the two nodes or kernels are not in one kernel. */
graphc_status explain_two(Cli *c, const PlanView *v, const char *first, const char *second);
/* Refuses a node that the plan does not know. */
graphc_status explain_unknown(Cli *c, const PlanView *v, const char *node);

/* json.c */
graphc_status explain_json(Cli *c, const PlanView *v);

#endif
