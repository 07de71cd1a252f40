/* Files: mapped whole for reading, replaced by rename for writing. */
#include "runtime/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WHY = 256 };

static graphc_status fail(char why[WHY], const char *what) {
    snprintf(why, WHY, "%s", what);
    return GRAPHC_IO;
}

static graphc_status refuse(char why[WHY], const char *what) {
    (void)fail(why, what);
    return GRAPHC_INVALID;
}

static graphc_status fail_errno(char why[WHY], const char *what) {
    snprintf(why, WHY, "%s: %s", what, strerror(errno));
    return errno == ENOMEM ? GRAPHC_NO_MEMORY : GRAPHC_IO;
}

/* Maps an open file; it stays open as *kept, or is closed. O_NONBLOCK at open kept a FIFO from
 * blocking; only regular files get this far into mmap. */
static graphc_status map_fd(int fd, FileMap *out, int *kept, char why[WHY]) {
    struct stat st;
    graphc_status s = GRAPHC_OK;
    const void *p = "";
    if (fstat(fd, &st) != 0)
        s = fail_errno(why, "cannot be examined");
    else if (!S_ISREG(st.st_mode))
        s = fail(why, S_ISDIR(st.st_mode) ? "is a folder" : "is not a regular file");
    else if (st.st_size > 0 &&
             (p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        s = fail_errno(why, "cannot be mapped");
    if (s == GRAPHC_OK) *out = (FileMap){.data = p, .size = (uint64_t)st.st_size};
    if (s == GRAPHC_OK && kept)
        *kept = fd;
    else
        close(fd);
    return s;
}

graphc_status file_map(const char *path, FileMap *out, char why[WHY]) {
    *out = (FileMap){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail_errno(why, "cannot be opened");
    return map_fd(fd, out, NULL, why);
}

void file_unmap(FileMap *m) {
    if (m->size && !m->lent) munmap((void *)(uintptr_t)m->data, (size_t)m->size);
    *m = (FileMap){0};
}

void file_rest(const void *p, uint64_t bytes) {
    const uintptr_t page = 4096;
    uintptr_t from = ((uintptr_t)p + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)p + bytes) / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}

const char *file_path_fault(const char *relative) {
    if (!*relative) return "has an empty name";
    if (*relative == '/') return "is an absolute path";
    if (strchr(relative, '\\')) return "has a backslash in its name";
    for (const char *c = relative; *c;) {
        size_t n = strcspn(c, "/");
        if (n == 2 && c[0] == '.' && c[1] == '.') return "leaves the folder through \"..\"";
        c += n + (c[n] == '/');
    }
    return NULL;
}

/* For kernels without openat2: every component is opened on its own without following links; where
 * one is, map_led_out judges. */
static int open_by_component(int dir, const char *relative, int flags) {
    int at = dup(dir);
    for (const char *c = relative; at >= 0;) {
        size_t n = strcspn(c, "/");
        char part[256];
        if (n >= sizeof part) {
            close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(part, c, n);
        part[n] = 0;
        bool last = !c[n];
        int next = openat(at, n ? part : ".",
                          (last ? flags : O_PATH | O_DIRECTORY | O_CLOEXEC) | O_NOFOLLOW);
        int saved = errno;
        close(at);
        errno = saved;
        if (last || next < 0) return next;
        at = next;
        c += n + 1;
    }
    return at;
}

static int open_beneath(int dir, const char *relative) {
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    struct open_how how = {.flags = (unsigned)flags,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, dir, relative, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != EINVAL)) return (int)fd;
    return open_by_component(dir, relative, flags);
}

/* Opens the folder that a path lies in; it is the user's own choice, so links are followed. */
static int open_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!dir) return -1;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int saved = errno;
    free(dir);
    errno = saved;
    return fd;
}

/* Where an open file lies, as the system sees it; "" if it does not say. */
static void place_of(int fd, char out[PATH_MAX]) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    out[n > 0 && out[0] == '/' ? n : 0] = 0;
}

/* Both without links. */
static bool lies_in(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return n == 1 ? *path == '/' : !strncmp(path, folder, n) && path[n] == '/';
}

static bool allowed(const char *place, const char *base_path, FileLinks links) {
    char folder[PATH_MAX];
    if (links.anywhere) return true;
    if (!*place) return false;
    if (links.root && realpath(links.root, folder) && lies_in(place, folder)) return true;
    char *slash = links.of_base && realpath(base_path, folder) ? strrchr(folder, '/') : NULL;
    if (slash) slash[slash == folder] = 0;
    return slash && lies_in(place, folder);
}

/* What leads out of the folder: judged by where the file lies once it is open, so that nothing can
 * change in between. */
static graphc_status map_led_out(int dir, const char *relative, const char *base_path,
                                 FileLinks links, FileMap *out, int *kept, char why[WHY]) {
    char place[PATH_MAX];
    int fd = openat(dir, relative, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail_errno(why, "cannot be opened");
    char folder[PATH_MAX];
    place_of(fd, place);
    place_of(dir, folder);
    if ((*folder && lies_in(place, folder)) || allowed(place, base_path, links))
        return map_fd(fd, out, kept, why);
    close(fd);
    snprintf(why, WHY, "leads out of the folder through a symbolic link, to %.160s", place);
    return GRAPHC_INVALID;
}

graphc_status file_open_beneath(const char *base_path, const char *relative, FileLinks links,
                                FileMap *out, int *kept, char why[WHY]) {
    *out = (FileMap){0};
    const char *fault = file_path_fault(relative);
    if (fault) return refuse(why, fault);
    int dir = open_folder_of(base_path);
    if (dir < 0) return fail_errno(why, "is in a folder that cannot be opened");
    graphc_status s;
    int fd = open_beneath(dir, relative);
    if (fd >= 0)
        s = map_fd(fd, out, kept, why);
    else if (errno == EXDEV || errno == ELOOP || errno == ENOTDIR)
        s = map_led_out(dir, relative, base_path, links, out, kept, why);
    else
        s = fail_errno(why, "cannot be opened");
    close(dir);
    return s;
}

graphc_status file_map_beneath(const char *base_path, const char *relative, FileLinks links,
                               FileMap *out, char why[WHY]) {
    return file_open_beneath(base_path, relative, links, out, NULL, why);
}

bool file_read(int fd, uint64_t at, void *to, uint64_t bytes) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (uint8_t *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (uint64_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

void folder_sync_of(const char *path) {
    int dir = open_folder_of(path);
    if (dir < 0) return;
    (void)fsync(dir);
    close(dir);
}

static int link_unnamed(int fd, const char *path) {
    char unnamed[32];
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, unnamed, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

/* Names a file beside `path` as no other is named: creates it, or links the unnamed file `fd`. */
static int name_beside(const char *path, int fd, char *temp, size_t room) {
    enum { TRIES = 100 };
    for (unsigned k = 0; k < TRIES; k++) {
        snprintf(temp, room, "%s.%ld-%u", path, (long)getpid(), k);
        int got = fd < 0 ? open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
                         : link_unnamed(fd, temp);
        if (got >= 0) return got;
        if (errno != EEXIST) break;
    }
    *temp = 0;
    return -1;
}

/* A new file in the folder of `path`: without a name, so that a process that is killed leaves
 * nothing behind (temp stays ""), or named where the file system has no such files. */
static int open_new(const char *path, char *temp, size_t room) {
    int dir = open_folder_of(path);
    if (dir < 0) return -1;
    int fd = access("/proc/self/fd", X_OK) == 0
                 ? openat(dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666)
                 : -1;
    close(dir);
    *temp = 0;
    return fd >= 0 ? fd : name_beside(path, -1, temp, room);
}

/* Gives a written file its name at once where there is none. An unnamed file cannot replace another
 * one, so it has a name of its own for the moment between two system calls. */
static bool put_in_place(const char *path, int fd, char *temp, size_t room) {
    if (!*temp && link_unnamed(fd, path) == 0) return true;
    return (*temp || name_beside(path, fd, temp, room) >= 0) && rename(temp, path) == 0;
}

/* Devices, pipes and the like are written to, never replaced. */
static bool is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static bool open_direct(const char *path, FileWriter *w) {
    bool standard = !strcmp(path, "-");
    if (!standard && !is_special(path)) return false;
    w->direct = true;
    w->fd = standard ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return true;
}

graphc_status file_begin(const char *path, FileWriter *w, char why[WHY]) {
    *w = (FileWriter){.fd = -1, .room = strlen(path) + 32};
    if (!open_direct(path, w)) {
        w->path = strdup(path);
        w->temp = malloc(w->room);
        if (!w->path || !w->temp)
            errno = ENOMEM;
        else
            w->fd = open_new(path, w->temp, w->room);
    }
    if (w->fd >= 0) return GRAPHC_OK;
    graphc_status s = fail_errno(why, w->direct ? "cannot be opened" : "cannot be created");
    file_abandon(w);
    return s;
}

graphc_status file_put(FileWriter *w, const void *data, size_t size, char why[WHY]) {
    if (!write_all(w->fd, data, size)) return fail_errno(why, "cannot be written");
    w->size += size;
    return GRAPHC_OK;
}

graphc_status file_patch(FileWriter *w, uint64_t offset, const void *data, size_t size,
                         char why[WHY]) {
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(w->fd, (const char *)data + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno(why, "cannot be written");
        done += (size_t)n;
    }
    return GRAPHC_OK;
}

graphc_status file_commit(FileWriter *w, char why[WHY]) {
    graphc_status s = GRAPHC_OK;
    if (w->direct) {
        int fd = w->fd;
        w->fd = -1;
        if (close(fd) != 0) s = fail_errno(why, "cannot be written");
    } else if (fsync(w->fd) != 0 || !put_in_place(w->path, w->fd, w->temp, w->room)) {
        s = fail_errno(why, "cannot be written");
    } else {
        folder_sync_of(w->path);
        *w->temp = 0; /* it has its name now */
    }
    file_abandon(w);
    return s;
}

void file_abandon(FileWriter *w) {
    if (w->fd >= 0) close(w->fd); /* all that it could report, fsync did */
    if (w->temp && *w->temp) unlink(w->temp);
    free(w->path);
    free(w->temp);
    *w = (FileWriter){.fd = -1};
}

graphc_status file_write(const char *path, const void *data, size_t size, char why[WHY]) {
    FileWriter w;
    GC_TRY(file_begin(path, &w, why));
    graphc_status s = file_put(&w, data, size, why);
    if (s == GRAPHC_OK) return file_commit(&w, why);
    file_abandon(&w);
    return s;
}

char *folder_join(const char *folder, const char *name) {
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path) snprintf(path, n, "%s/%s", folder, name);
    return path;
}

graphc_status folder_make(const char *path, char why[WHY]) {
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return fail_errno(why, "cannot be made");
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool writable = dir >= 0 && faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) == 0;
    int saved = errno;
    if (dir >= 0) close(dir);
    errno = saved;
    if (writable) return GRAPHC_OK;
    return errno == ENOTDIR ? fail(why, "is not a folder")
                            : fail_errno(why, "is a folder that cannot be written to");
}
