/* Preloaded into graphc, runs many command lines, each in a process of its own that is forked from
 * this one: what a start costs, above all loading LLVM, is paid once. forks.py speaks to it.
 *
 * A request on standard input: its size in bytes as decimal digits and a newline, then strings that
 * end with NUL: the files that get the child's standard output and error, its folder, the seconds
 * that it may take, how many variables its environment has, those as KEY=VALUE, the arguments. The
 * answer on standard output: a line with the exit status, or minus the signal that ended it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int MainFn(int, char **, char **);
typedef int StartFn(MainFn *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

__attribute__((visibility("default"))) int __libc_start_main(MainFn *fn, int argc, char **argv,
                                                             void (*init)(void), void (*fini)(void),
                                                             void (*rtld_fini)(void),
                                                             void *stack_end);

__attribute__((visibility("default"))) int fsync(int fd);

static MainFn *program;

/* In place of libc's: what these processes write is read by the test that started them, and need
 * not outlive the machine. */
int fsync(int fd) {
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

static void redirect(int fd, const char *path, int flags) {
    int to = open(path, flags, 0600);
    if (to < 0 || dup2(to, fd) < 0) _exit(126);
    close(to);
}

/* In the child: the request's command line. */
static int run(char **word, int n) {
    int vars = atoi(word[4]), argc = n - 5 - vars;
    redirect(0, "/dev/null", O_RDONLY);
    redirect(1, word[0], O_WRONLY | O_CREAT | O_TRUNC);
    redirect(2, word[1], O_WRONLY | O_CREAT | O_TRUNC);
    if (chdir(word[2]) < 0 || clearenv()) _exit(126);
    alarm((unsigned)atoi(word[3]));
    for (int i = 0; i < vars; i++) (void)putenv(word[5 + i]);
    return program(argc, word + 5 + vars, environ);
}

/* LLVM's destructors, thousands, would each touch pages that are shared so far. */
static _Noreturn void end(int status) {
    _exit(fflush(NULL) ? 125 : status);
}

/* Ends of strings begin the next one. The array ends with NULL. */
static char **split(char *text, size_t size, int *n) {
    char **word = calloc(size + 1, sizeof *word);
    if (!word) exit(125);
    for (size_t at = 0; at < size; at += strlen(text + at) + 1) word[(*n)++] = text + at;
    return word;
}

static int serve(int argc, char **argv, char **env) {
    size_t size;
    (void)argc, (void)argv, (void)env;
    while (scanf("%zu%*1[\n]", &size) == 1) {
        int n = 0, status;
        char *text = calloc(size + 1, 1);
        if (!text || fread(text, 1, size, stdin) != size) return 125;
        char **word = split(text, size, &n);
        pid_t child = n > 5 ? fork() : -1;
        if (child == 0) end(run(word, n));
        if (child < 0 || waitpid(child, &status, 0) != child) return 125;
        printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        fflush(stdout);
        free(word);
        free(text);
    }
    return 0;
}

int __libc_start_main(MainFn *fn, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end) {
    StartFn *start;
    void *at = dlsym(RTLD_NEXT, "__libc_start_main");
    memcpy(&start, &at, sizeof start);
    program = fn;
    return start(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
