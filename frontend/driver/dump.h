/* --dump-ir DIR: the text of every level, one file per stage. */
#ifndef FRONTEND_DRIVER_DUMP_H
#define FRONTEND_DRIVER_DUMP_H

#include "fusion/schedule/schedule.h"

typedef struct Dump {
    const char *dir; /* NULL: nothing is dumped and every call returns at once */
    Arena *arena;
    DiagSink *diags;
    const char *target;              /* prefixes per-target files when a plan has several targets */
    const struct DumpReader *reader; /* also gets the code; NULL: nobody */
    const char *code_of;             /* ... with the name of the target that it is for */
} Dump;

/* Who wants each kernel's code as text: ext as in files, "v3.s", "ptx". Called from one thread. */
typedef struct DumpReader {
    void (*code)(void *ctx, const char *target, const char *kernel, const char *ext,
                 const char *text, size_t n);
    void *ctx;
} DumpReader;

graphc_status dump_open(Dump *d); /* makes the folder */
void dump_graph(Dump *d, const char *file, const Graph *g);
void dump_schedule(Dump *d, const char *file, const Schedule *s);
void dump_plan(Dump *d, const char *file, const void *plan, size_t size);
/* Matches PassDump.fn and CodeOptions.dump; ctx is the Dump. */
void dump_pass(void *ctx, int index, const char *pass, const Graph *g);
void dump_code(void *ctx, const char *kernel, const char *ext, const char *text, size_t n);

#endif
