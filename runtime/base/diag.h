/* Diagnostics are data: id, severity, place, text, hint, collected in a sink. Libraries never
 * print; the command line renders. A sink is used by one thread. */
#ifndef BASE_DIAG_H
#define BASE_DIAG_H

#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum DiagId {
#define DIAG(id, number, severity, status, summary) D_##id,
#include "runtime/base/diag.def"
#undef DIAG
    D_COUNT
} DiagId;

typedef enum DiagSeverity { SEV_note, SEV_warning, SEV_error } DiagSeverity;

typedef struct DiagInfo {
    const char *name;
    int number;
    DiagSeverity severity;
    graphc_status status;
    const char *summary;
} DiagInfo;
extern const DiagInfo diag_info[D_COUNT];

typedef struct Diag {
    DiagId id;
    const char *place; /* node 17 "val_12" Conv; "" where no node is concerned */
    const char *text;
    const char *hint; /* what to do about it, or NULL */
} Diag;

typedef struct DiagSink DiagSink;

DiagSink *diag_create(Arena *a, const char *file); /* file: the model's or plan's path, or NULL */
/* Adds one diagnostic and returns the status its id stands for, so that `return diag(...)` works.
 * Past 64 errors further ones are counted, and one note says how many. */
graphc_status diag(DiagSink *s, DiagId id, const char *place, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Attaches a hint to the last diagnostic added. */
void diag_hint(DiagSink *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* As if nothing had been added since there were `count`, none of them an error. */
void diag_rewind(DiagSink *s, uint32_t count);

uint32_t diag_count(const DiagSink *s);
uint32_t diag_errors(const DiagSink *s);
const Diag *diag_at(const DiagSink *s, uint32_t i);
/* The status of the first error; GRAPHC_OK when there is none. */
graphc_status diag_status(const DiagSink *s);
/* "graphc: error[G0412]: FILE: PLACE: TEXT\n  hint: ..." into the arena. */
const char *diag_render(const DiagSink *s, const Diag *d, Arena *a, bool color);

#endif
