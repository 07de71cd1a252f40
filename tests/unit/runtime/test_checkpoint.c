/* Checkpoints: what was kept is found again, damage and other options are named, and a kill or a
 * failure at any system call leaves the last good one. The calls that change files are counted
 * here. */
#include "runtime/train/checkpoint.h"
#include "tests/unit/test.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long calls, fault_at = -1;
static int fault; /* an errno, or 0: the process is killed */

/* True if the call that begins is to fail. */
static bool faulty(void) {
    if (calls++ != fault_at) return false;
    if (!fault) kill(getpid(), SIGKILL);
    errno = fault;
    return true;
}

#pragma GCC visibility push(default)
ssize_t write(int fd, const void *p, size_t n) {
    if (fault_at >= 0 && faulty()) return -1;
    /* Half of it, so that the next fault finds a part written. */
    return syscall(SYS_write, fd, p, fault_at >= 0 && n > 1 ? n / 2 : n);
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
    return fault_at >= 0 && faulty() ? -1 : syscall(SYS_pwrite64, fd, p, n, at);
}
int fsync(int fd) {
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_fsync, fd);
}
int rename(const char *from, const char *to) {
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_rename, from, to);
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_renameat2, a, from, b, to, flags);
}
int linkat(int a, const char *from, int b, const char *to, int flags) {
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_linkat, a, from, b, to, flags);
}
int mkdir(const char *path, mode_t mode) {
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_mkdir, path, mode);
}
int unlink(const char *path) {
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_unlink, path);
}
int unlinkat(int fd, const char *path, int flags) {
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_unlinkat, fd, path, flags);
}
int rmdir(const char *path) {
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_rmdir, path);
}
int openat(int fd, const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = va_arg(ap, mode_t);
    va_end(ap);
    return fault_at >= 0 && faulty() ? -1 : (int)syscall(SYS_openat, fd, path, flags, mode);
}
#pragma GCC visibility pop

static char folder[] = "/tmp/graphc_checkpoint_XXXXXX", root[64];
static char why[1024];
static const ErrorText e = {why, sizeof why};
static const SafePair options[] = {{"lr", "0.001"}, {"batch", "8"}};
enum { COUNT = 5000 };

static graphc_status save_state(const CheckpointWriter *w, uint64_t step) {
    static float values[COUNT];
    const int64_t dim = COUNT;
    const SafeTensor t = {.name = "w", .dtype = DT_f32, .rank = 1, .dim = &dim, .data = values};
    for (int i = 0; i < COUNT; i++) values[i] = (float)step + (float)i;
    char *path = checkpoint_path(w, "state.safetensors");
    graphc_status st = safetensors_write(path, &t, 1, NULL, 0, true, e);
    free(path);
    return st;
}

/* A checkpoint as a run writes it. */
static graphc_status save(uint64_t step, bool best, uint32_t keep) {
    CheckpointWriter w;
    const CheckpointInfo info = {.step = step,
                                 .tokens = step * 1000,
                                 .epoch = 2,
                                 .position = 17,
                                 .waiting = 99,
                                 .loss = 1.0 / 3,
                                 .best_loss = (double)NAN,
                                 .options = options,
                                 .noptions = 2};
    graphc_status st = checkpoint_begin(&w, root, e);
    if (st != GRAPHC_OK) return st;
    st = save_state(&w, step);
    if (st != GRAPHC_OK) {
        checkpoint_abandon(&w);
        return st;
    }
    st = checkpoint_commit(&w, &info, best, e);
    return st == GRAPHC_OK ? checkpoint_prune(root, keep, e) : st;
}

/* The step of a checkpoint that is whole; 0: there is none. */
static uint64_t whole(const char *which) {
    Checkpoint c;
    Safetensors s;
    char path[256];
    if (checkpoint_open(root, which, &c, e) != GRAPHC_OK) return 0;
    uint64_t step = c.info.step;
    snprintf(path, sizeof path, "%s/state.safetensors", c.folder);
    CHECK(c.info.tokens == step * 1000 && c.info.epoch == 2 && c.info.position == 17 &&
          c.info.waiting == 99 && c.info.loss == 1.0 / 3 && isnan(c.info.best_loss));
    CHECK(checkpoint_match(&c, options, 2, e) == GRAPHC_OK);
    if (CHECK(safetensors_open(path, &s, e) == GRAPHC_OK)) {
        const SafeTensor *t = safetensors_find(&s, "w");
        CHECK(t && t->dim[0] == COUNT && *(const float *)t->data == (float)step);
        safetensors_close(&s);
    }
    checkpoint_close(&c);
    return step;
}

static int entries(const char *path) {
    DIR *d = opendir(path);
    int n = -2; /* . and .. */
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static void check_keeping(void) {
    CHECK(checkpoint_open(root, "latest", &(Checkpoint){0}, e) == GRAPHC_IO);
    CHECK(strstr(why, "has no latest checkpoint"));
    for (uint64_t step = 10; step <= 60; step += 10) CHECK(save(step, step == 20, 2) == GRAPHC_OK);
    CHECK_EQ_I(whole("latest"), 60);
    CHECK_EQ_I(whole("best"), 20);
    CHECK_EQ_I(whole("step-00000050"), 50);
    CHECK_EQ_I(entries(root), 5); /* 20, 50, 60, latest, best */
    CHECK(checkpoint_any(root) && !checkpoint_any(folder));
    char latest[512]; /* lost, it is the one of the most steps */
    snprintf(latest, sizeof latest, "%s/latest", root);
    CHECK(unlink(latest) == 0 && checkpoint_any(root));
    CHECK_EQ_I(whole("latest"), 60);
    CHECK(save(60, true, 1) == GRAPHC_OK); /* once more, in place of itself */
    CHECK_EQ_I(whole("best"), 60);
    CHECK_EQ_I(entries(root), 3);
}

static void check_match(void) {
    Checkpoint c;
    const SafePair now[] = {{"lr", "0.002"}, {"batch", "8"}, {"seq", "64"}};
    if (!CHECK(checkpoint_open(root, "latest", &c, e) == GRAPHC_OK)) return;
    CHECK(checkpoint_match(&c, now, 3, e) == GRAPHC_MISMATCH);
    CHECK_STR(why, "lr was 0.001, is 0.002; seq was not given, is 64");
    char small[16];
    CHECK(checkpoint_match(&c, now, 3, (ErrorText){small, sizeof small}) == GRAPHC_MISMATCH);
    CHECK_STR(small, "lr was 0.001, i");
    checkpoint_close(&c);
}

/* Every bit of every file of a checkpoint. */
static void check_damage(const char *name, long every) {
    char path[256], temp[300];
    FileMap m;
    snprintf(path, sizeof path, "%s/step-00000060/%s", root, name);
    snprintf(temp, sizeof temp, "%s.whole", path);
    if (!CHECK(file_map(path, &m, why) == GRAPHC_OK)) return;
    int fd = open(path, O_RDWR);
    for (uint64_t bit = 0; bit < 8 * m.size; bit += (uint64_t)every) {
        uint8_t was = m.data[bit / 8], is = was ^ (uint8_t)(1u << bit % 8);
        CHECK(pwrite(fd, &is, 1, (off_t)(bit / 8)) == 1);
        CHECK(whole("latest") == 0 && strstr(why, "step-00000060: ") && strstr(why, "damaged"));
        CHECK(pwrite(fd, &was, 1, (off_t)(bit / 8)) == 1);
    }
    close(fd);
    file_unmap(&m);
    CHECK_EQ_I(whole("latest"), 60);
    CHECK(rename(path, temp) == 0 && whole("latest") == 0 && strstr(why, name));
    CHECK(rename(temp, path) == 0);
}

/* A checkpoint of `step`, killed at call k or failing there with an errno. The last call's number
 * is larger than k. */
static int save_with_fault(uint64_t step, long k, int how) {
    fflush(NULL);
    pid_t child = fork();
    int status;
    if (child == 0) {
        fault_at = k;
        fault = how;
        graphc_status st = save(step, step % 2 == 0, 1);
        _exit(calls <= k ? 100 : st == GRAPHC_OK ? 0 : !why[0] ? 101 : (int)st);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? 200 : WEXITSTATUS(status);
}

static void check_faults(int how) {
    uint64_t last = whole("latest");
    bool through = false;
    long k = 0;
    for (uint64_t step = last + 1; !through && k < 1000; k++, step++) {
        int end = save_with_fault(step, k, how);
        uint64_t now = whole("latest"), best = whole("best");
        through = end == 100;
        CHECK(now == last || now == step);
        CHECK(best > 0 && best <= now); /* a good one, too */
        CHECK(how ? end == 0 || end == 100 || end == GRAPHC_IO : end == 200 || end == 100);
        if (end == 0 || end == 100) CHECK_EQ_I(now, step);
        last = now;
    }
    CHECK(through && k > 25);
    CHECK(save(last + 1000, true, 1) == GRAPHC_OK);
    CHECK_EQ_I(entries(root), 3); /* nothing was left behind */
    printf("%s at each of %ld calls\n", how ? strerror(how) : "killed", k - 1);
}

TEST_MAIN {
    if (!CHECK(mkdtemp(folder))) return;
    snprintf(root, sizeof root, "%s/checkpoints", folder);
    check_keeping();
    check_match();
    check_damage("checkpoint.json", 1);
    check_damage("state.safetensors", 997);
    check_faults(0);
    check_faults(ENOSPC);
    check_faults(EIO);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}
