#include "codegen/nvptx/assembler.h"
#include "runtime/base/file.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef GRAPHC_NVPTXCOMPILER
#include <nvPTXCompiler.h>
#endif

/* --- What both report ------------------------------------------------------------------------- */

static uint32_t number(const char *end, const char *line) {
    const char *p = end;
    while (p > line && p[-1] >= '0' && p[-1] <= '9') p--;
    return (uint32_t)strtoul(p, NULL, 10);
}

/* "N bytes stack frame, N bytes spill stores, ...", "Used N registers", and warnings as "(C7510)
 * Potential Performance Loss: ...". */
static void read_report(const char *log, Arena *a, Assembled *out) {
    static const struct {
        const char *text;
        size_t at;
    } facts[] = {{" bytes stack frame", offsetof(Assembled, stack)},
                 {" bytes spill stores", offsetof(Assembled, spilled)},
                 {" registers", offsetof(Assembled, registers)}};
    for (const char *line = log; *line;) {
        size_t n = strcspn(line, "\n");
        for (size_t f = 0; f < sizeof facts / sizeof *facts; f++) {
            const char *at = memmem(line, n, facts[f].text, strlen(facts[f].text));
            uint32_t v = at ? number(at, line) : 0;
            if (at) memcpy((char *)out + facts[f].at, &v, sizeof v);
        }
        const char *code = memmem(line, n, "(C75", 4);
        if (code && !out->warning) out->warning = arena_strndup(a, code, (size_t)(line + n - code));
        line += n + (line[n] == '\n');
    }
}

/* --- The program ------------------------------------------------------------------------------ */

#define KEEP_PERSONALITY 0xffffffff /* asks only */

extern char **environ;

/* Its absolute name, or NULL if it cannot be run. */
static const char *runnable(const char *name, Arena *a) {
    if (access(name, X_OK) != 0) return NULL;
    char *here = *name == '/' ? NULL : getcwd(NULL, 0);
    const char *path = arena_printf(a, "%s%s%s", here ? here : "", here ? "/" : "", name);
    free(here);
    return path;
}

/* $GRAPHC_PTXAS alone where it is set, else ptxas of the path or of the usual place. */
static const char *find_program(Arena *a) {
    const char *given = getenv("GRAPHC_PTXAS");
    if (given) return runnable(given, a);
    const char *path = getenv("PATH");
    for (const char *p = path ? path : ""; *p;) {
        size_t n = strcspn(p, ":");
        const char *name = runnable(arena_printf(a, "%.*s/ptxas", (int)n, p), a);
        if (n && name) return name;
        p += n + (p[n] == ':');
    }
    return runnable("/usr/local/cuda/bin/ptxas", a);
}

/* Runs the assembler in `dir` with its messages in `log`; its exit status, or -1. What ptxas makes
 * of one input depends on the addresses that it is loaded at and on the length of its arguments
 * (registers trade places): so addresses are not randomised, where the system allows that, and
 * files are named by short names. A thread's personality is its own. */
static int run(const char *program, char *const argv[], const char *dir, const char *log) {
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions)) return -1;
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addchdir_np(&actions, dir);
    pid_t pid;
    int status = -1, own = personality(KEEP_PERSONALITY);
    if (own != -1) (void)personality((unsigned long)own | ADDR_NO_RANDOMIZE);
    int failed = posix_spawn(&pid, program, &actions, NULL, argv, environ);
    if (own != -1) (void)personality((unsigned long)own);
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

#define PTX   "in.ptx"
#define CUBIN "out.cubin"

typedef struct Temp {
    char *dir;
    const char *ptx, *cubin, *log;
} Temp;

static bool temp_make(Temp *t, const char *ptx, Arena *a) {
    char why[256];
    const char *tmp = getenv("TMPDIR");
    t->dir = arena_printf(a, "%s/graphc-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(t->dir)) return false;
    t->ptx = arena_printf(a, "%s/%s", t->dir, PTX);
    t->cubin = arena_printf(a, "%s/%s", t->dir, CUBIN);
    t->log = arena_printf(a, "%s/log", t->dir);
    return file_write(t->ptx, ptx, strlen(ptx), why) == GRAPHC_OK;
}

static void temp_remove(const Temp *t) {
    unlink(t->ptx);
    unlink(t->cubin);
    unlink(t->log);
    rmdir(t->dir);
}

/* NULL: it does not run. */
static const char *program_release(const char *program, Arena *a) {
    static const char before[] = "release ";
    Temp t;
    if (!temp_make(&t, "", a)) return NULL;
    char *argv[] = {arena_strdup(a, program), arena_strdup(a, "--version"), NULL};
    const char *at =
        run(program, argv, t.dir, t.log) == 0 ? strstr(read_text(t.log, a), before) : NULL;
    temp_remove(&t);
    if (!at) return NULL;
    at += sizeof before - 1;
    return arena_strndup(a, at, strcspn(at, ",\n"));
}

static void run_program(const Assembler *by, const char *ptx, const char *arch, Arena *a,
                        Assembled *out) {
    Temp t;
    if (!temp_make(&t, ptx, a)) {
        out->error = "there is no temporary folder for ptxas";
        return;
    }
    char *argv[] = {arena_strdup(a, by->program),
                    arena_printf(a, "-arch=%s", arch),
                    arena_strdup(a, "-v"),
                    arena_strdup(a, "-o"),
                    arena_strdup(a, CUBIN),
                    arena_strdup(a, PTX),
                    NULL};
    int status = run(by->program, argv, t.dir, t.log);
    const char *log = read_text(t.log, a);
    FileMap m;
    char why[256];
    if (status == 0 && file_map(t.cubin, &m, why) == GRAPHC_OK) {
        out->cubin = arena_copy(a, m.data, m.size);
        out->size = m.size;
        file_unmap(&m);
        read_report(log, a, out);
    } else {
        out->error = arena_printf(a, "%s failed: %.400s", by->program, log);
    }
    temp_remove(&t);
}

/* --- The library ------------------------------------------------------------------------------ */

#ifdef GRAPHC_NVPTXCOMPILER

typedef nvPTXCompileResult GetSize(nvPTXCompilerHandle h, size_t *n);
typedef nvPTXCompileResult GetText(nvPTXCompilerHandle h, char *text);

static const char *library_log(nvPTXCompilerHandle h, GetSize *size, GetText *text, Arena *a) {
    size_t n = 0;
    if (size(h, &n) != NVPTXCOMPILE_SUCCESS || n == 0) return "";
    char *out = arena_alloc(a, n + 1);
    return text(h, out) == NVPTXCOMPILE_SUCCESS ? out : "";
}

static bool take_cubin(nvPTXCompilerHandle h, Arena *a, Assembled *out) {
    size_t n = 0;
    if (nvPTXCompilerGetCompiledProgramSize(h, &n) != NVPTXCOMPILE_SUCCESS || n == 0) return false;
    char *cubin = arena_alloc(a, n);
    out->cubin = cubin;
    out->size = n;
    return nvPTXCompilerGetCompiledProgram(h, cubin) == NVPTXCOMPILE_SUCCESS;
}

static void run_library(const char *ptx, const char *arch, Arena *a, Assembled *out) {
    const char *options[] = {arena_printf(a, "--gpu-name=%s", arch), "--verbose"};
    nvPTXCompilerHandle h = NULL;
    if (nvPTXCompilerCreate(&h, strlen(ptx), ptx) != NVPTXCOMPILE_SUCCESS) {
        out->error = "the PTX compiler library cannot be started";
        return;
    }
    bool ok = nvPTXCompilerCompile(h, 2, options) == NVPTXCOMPILE_SUCCESS && take_cubin(h, a, out);
    const char *log =
        ok ? library_log(h, nvPTXCompilerGetInfoLogSize, nvPTXCompilerGetInfoLog, a)
           : library_log(h, nvPTXCompilerGetErrorLogSize, nvPTXCompilerGetErrorLog, a);
    if (ok)
        read_report(log, a, out);
    else
        out->error = arena_printf(a, "the PTX compiler library failed: %.400s", log);
    nvPTXCompilerDestroy(&h);
}

static bool find_library(Assembler *out, Arena *a) {
    unsigned major = 0, minor = 0;
    if (nvPTXCompilerGetVersion(&major, &minor) != NVPTXCOMPILE_SUCCESS) return false;
    out->name = arena_printf(a, "nvPTXCompiler %u.%u", major, minor);
    return true;
}

#else

static void run_library(const char *ptx, const char *arch, Arena *a, Assembled *out) {
    (void)ptx, (void)arch, (void)a;
    out->error = "graphc was built without the PTX compiler library";
}
static bool find_library(Assembler *out, Arena *a) {
    (void)out, (void)a;
    return false;
}

#endif

/* --- Either ----------------------------------------------------------------------------------- */

const Assembler *assembler_find(Arena *a) {
    Assembler *out = ARENA_NEW(a, Assembler);
    *out = (Assembler){0};
    if (!getenv("GRAPHC_PTXAS") && find_library(out, a)) return out;
    out->program = find_program(a);
    const char *release = out->program ? program_release(out->program, a) : NULL;
    if (release) out->name = arena_printf(a, "ptxas %s", release);
    return release ? out : NULL;
}

const char *codegen_assembler(Arena *a) {
    const Assembler *by = assembler_find(a);
    if (!by) return NULL;
    return by->program ? arena_printf(a, "%s (%s)", by->name, by->program)
                       : arena_printf(a, "%s (built in)", by->name);
}

void assembler_run(const Assembler *by, const char *ptx, const char *arch, Arena *a,
                   Assembled *out) {
    *out = (Assembled){0};
    if (by->program)
        run_program(by, ptx, arch, a, out);
    else
        run_library(ptx, arch, a, out);
}
