#include "codegen/nvptx/assembler.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

/* What goes in and comes out lies in memory: files without a name, which are gone with the
 * processes that have them open, however those end. The assembler finds them under these numbers */
enum { IN_FD = 3, OUT_FD, FREE_FD };
#define IN_NAME  "/proc/self/fd/3"
#define OUT_NAME "/proc/self/fd/4"

typedef struct Streams {
    int in, out, log;
} Streams;

static bool streams_open(Streams *s, const char *ptx) {
    size_t n = strlen(ptx), at = 0;
    s->in = memfd_create("ptx", MFD_CLOEXEC);
    s->out = memfd_create("cubin", MFD_CLOEXEC);
    s->log = memfd_create("log", MFD_CLOEXEC);
    while (s->in >= 0 && at < n) {
        ssize_t put = write(s->in, ptx + at, n - at);
        if (put <= 0) return false;
        at += (size_t)put;
    }
    return s->in >= 0 && s->out >= 0 && s->log >= 0;
}

static void streams_close(const Streams *s) {
    const int fds[] = {s->in, s->out, s->log};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) close(fds[i]);
}

/* All that was written, with a zero behind it. */
static char *stream_read(int fd, size_t *size, Arena *a) {
    struct stat st;
    size_t n = fstat(fd, &st) == 0 ? (size_t)st.st_size : 0, at = 0;
    char *data = arena_alloc(a, n + 1);
    for (ssize_t got; at < n && (got = pread(fd, data + at, n - at, (off_t)at)) > 0;)
        at += (size_t)got;
    data[at] = 0;
    *size = at;
    return data;
}

/* In the new process: it ends with the thread that waits for it, and so with this process. */
static _Noreturn void become(const char *program, char *const argv[], const Streams *s,
                             pid_t parent) {
    int in = fcntl(s->in, F_DUPFD, FREE_FD), out = fcntl(s->out, F_DUPFD, FREE_FD);
    int log = fcntl(s->log, F_DUPFD, FREE_FD);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(in, IN_FD) < 0 || dup2(out, OUT_FD) < 0 || dup2(log, 1) < 0 ||
        dup2(log, 2) < 0)
        _exit(127);
    close(in);
    close(out);
    close(log);
    execve(program, argv, environ);
    _exit(127);
}

/* Runs the assembler; its exit status, or -1. What ptxas makes of one input depends on the
 * addresses that it is loaded at and on the length of its arguments (registers trade places): so
 * addresses are not randomised, where the system allows that, and names of files are always the
 * same. A thread's personality is its own. posix_spawn could not tie the process to this one. */
static int run(const char *program, char *const argv[], const Streams *s) {
    int status = -1, own = personality(KEEP_PERSONALITY);
    pid_t parent = getpid();
    if (own != -1) (void)personality((unsigned long)own | ADDR_NO_RANDOMIZE);
    pid_t pid = vfork();
    if (pid == 0) become(program, argv, s, parent);
    if (own != -1) (void)personality((unsigned long)own);
    if (pid < 0) return -1;
    while (waitpid(pid, &status, 0) < 0) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* NULL: it does not run. */
static const char *program_release(const char *program, Arena *a) {
    static const char before[] = "release ";
    Streams s;
    size_t n;
    const char *at = NULL;
    char *argv[] = {arena_strdup(a, program), arena_strdup(a, "--version"), NULL};
    if (streams_open(&s, "") && run(program, argv, &s) == 0)
        at = strstr(stream_read(s.log, &n, a), before);
    streams_close(&s);
    if (!at) return NULL;
    at += sizeof before - 1;
    return arena_strndup(a, at, strcspn(at, ",\n"));
}

static void run_program(const Assembler *by, const char *ptx, const char *arch, Arena *a,
                        Assembled *out) {
    Streams s;
    char *argv[] = {arena_strdup(a, by->program),
                    arena_printf(a, "-arch=%s", arch),
                    arena_strdup(a, "-v"),
                    arena_strdup(a, "-o"),
                    arena_strdup(a, OUT_NAME),
                    arena_strdup(a, IN_NAME),
                    NULL};
    if (!streams_open(&s, ptx)) {
        out->error = "there is no memory for ptxas's files";
        streams_close(&s);
        return;
    }
    int status = run(by->program, argv, &s);
    size_t n;
    const char *log = stream_read(s.log, &n, a);
    if (status == 0) {
        out->cubin = stream_read(s.out, &n, a);
        out->size = n;
        read_report(log, a, out);
    }
    if (status != 0 || !n) out->error = arena_printf(a, "%s failed: %.400s", by->program, log);
    streams_close(&s);
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
