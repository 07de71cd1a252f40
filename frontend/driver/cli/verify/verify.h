/* What the files of `graphc verify` share. */
#ifndef FRONTEND_DRIVER_CLI_VERIFY_VERIFY_H
#define FRONTEND_DRIVER_CLI_VERIFY_VERIFY_H

#include "frontend/driver/bound.h"
#include "frontend/driver/check.h"
#include "frontend/driver/cli/session.h"
#include "frontend/driver/compare.h"

/* One compilation and run. */
typedef struct Trial {
    Pipeline pipe;
    CliSession session;
    EvalTensor *want, *got; /* outputs of the reference and of the run */
    Arena *memory;          /* of what is only wanted for this trial */
    Value extra;            /* also made an output; 0 = none */
    uint32_t fuse_at_most;  /* FUSE_ALL: as the command line says */
} Trial;

/* What a run of verify has found, for text and JSON. */
typedef struct Verdict {
    OutputBound *bound;
    Comparison *outputs;
    bool *fine;
    bool *between; /* fine, since it lies between the reference with and without roundings */
    CheckRow *rows;
    uint32_t noutputs, nrows;
    const char *first_bad, *first_decision;
    double rtol, atol;
    bool files, tolerances, ok;
} Verdict;

/* report.c: what was found, as text or JSON. */
const CheckRow *verify_first_bad(const Verdict *v); /* in launch order; NULL: none */
void verify_report(const Verdict *v, const Trial *t, const Cli *c);
/* page.c: the same as a page. */
graphc_status verify_page(Cli *c, const Verdict *v, const Trial *t, const char *path);

#endif
