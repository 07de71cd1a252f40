#include "codegen/nvptx/ptxas.h"
#include "runtime/base/file.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const char *codegen_ptxas(Arena *a) {
    const char *path = getenv("PATH");
    for (const char *p = path ? path : ""; *p;) {
        size_t n = strcspn(p, ":");
        const char *name = arena_printf(a, "%.*s/ptxas", (int)n, p);
        if (n && access(name, X_OK) == 0) return name;
        p += n + (p[n] == ':');
    }
    const char *usual = "/usr/local/cuda/bin/ptxas";
    return access(usual, X_OK) == 0 ? usual : NULL;
}

/* Runs the assembler with its messages in `log`; its exit status, or -1. */
static int run(const char *program, char *const argv[], const char *log) {
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions)) return -1;
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid;
    int status = -1;
    int failed = posix_spawn(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return -1;
    while (waitpid(pid, &status, 0) < 0) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *read_text(const char *path, Arena *a) {
    FileMap m;
    char why[256];
    if (file_map(path, &m, why) != GRAPHC_OK) return arena_strdup(a, "");
    char *text = arena_strndup(a, (const char *)m.data, m.size);
    file_unmap(&m);
    return text;
}

static uint32_t number(const char *end, const char *line) {
    const char *p = end;
    while (p > line && p[-1] >= '0' && p[-1] <= '9') p--;
    return (uint32_t)strtoul(p, NULL, 10);
}

/* Per kernel "... properties for SYMBOL", "... N bytes spill stores ...", "... Used N registers".
 */
static void read_report(const char *log, Arena *a, PtxasReport *r) {
    static const char name[] = "properties for ", spill[] = " bytes spill stores",
                      used[] = " registers";
    for (const char *line = log; *line;) {
        size_t n = strcspn(line, "\n");
        const char *at = memmem(line, n, name, sizeof name - 1);
        if (at) {
            at += sizeof name - 1;
            PtxasKernel k = {.symbol = arena_strndup(a, at, (size_t)(line + n - at))};
            vec_push(a, &r->kernels, k);
        }
        PtxasKernel *k = r->kernels.n ? &r->kernels.v[r->kernels.n - 1] : NULL;
        if (k && (at = memmem(line, n, spill, sizeof spill - 1))) k->spilled = number(at, line);
        if (k && (at = memmem(line, n, used, sizeof used - 1))) k->registers = number(at, line);
        line += n + (line[n] == '\n');
    }
}

void ptxas_warn_spills(const PtxasReport *r, DiagSink *d) {
    for (uint32_t i = 0; i < r->kernels.n; i++) {
        const PtxasKernel *k = &r->kernels.v[i];
        if (k->spilled)
            (void)!diag(d, D_PTXAS, "", "kernel %s spills %u bytes of registers", k->symbol,
                        k->spilled);
    }
}

typedef struct Temp {
    char *dir;
    const char *ptx, *cubin, *log;
} Temp;

static bool temp_make(Temp *t, const char *ptx, Arena *a) {
    char why[256];
    const char *tmp = getenv("TMPDIR");
    t->dir = arena_printf(a, "%s/graphc-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(t->dir)) return false;
    t->ptx = arena_printf(a, "%s/in.ptx", t->dir);
    t->cubin = arena_printf(a, "%s/out.cubin", t->dir);
    t->log = arena_printf(a, "%s/log", t->dir);
    return file_write(t->ptx, ptx, strlen(ptx), why) == GRAPHC_OK;
}

static void temp_remove(const Temp *t) {
    unlink(t->ptx);
    unlink(t->cubin);
    unlink(t->log);
    rmdir(t->dir);
}

const char *codegen_ptxas_release(const char *program, Arena *a) {
    static const char before[] = "release ";
    Temp t;
    if (!temp_make(&t, "", a)) return "?";
    char *argv[] = {arena_strdup(a, program), arena_strdup(a, "--version"), NULL};
    const char *at = run(program, argv, t.log) == 0 ? strstr(read_text(t.log, a), before) : NULL;
    temp_remove(&t);
    if (!at) return "?";
    at += sizeof before - 1;
    return arena_strndup(a, at, strcspn(at, ",\n"));
}

graphc_status ptxas_assemble(const char *ptx, const char *arch, Arena *a, DiagSink *d,
                             CodeBlob *out, PtxasReport *r) {
    const char *program = codegen_ptxas(a);
    Temp t;
    if (!program) return diag(d, D_PTXAS, "", "ptxas was not found: the plan carries PTX only");
    if (!temp_make(&t, ptx, a))
        return diag(d, D_PTXAS, "", "no temporary folder for ptxas: the plan carries PTX only");
    char *argv[] = {arena_strdup(a, program),
                    arena_printf(a, "-arch=%s", arch),
                    arena_strdup(a, "-v"),
                    arena_strdup(a, "-o"),
                    arena_strdup(a, t.cubin),
                    arena_strdup(a, t.ptx),
                    NULL};
    int status = run(program, argv, t.log);
    const char *log = read_text(t.log, a);
    FileMap m;
    char why[256];
    graphc_status st = GRAPHC_OK;
    if (status == 0 && file_map(t.cubin, &m, why) == GRAPHC_OK) {
        out->data = arena_copy(a, m.data, m.size);
        out->size = m.size;
        file_unmap(&m);
        read_report(log, a, r);
    } else {
        st = diag(d, D_PTXAS, "", "%s failed: %.400s", program, log);
    }
    temp_remove(&t);
    return st;
}
