#include "runtime/base/file.h"
#include "runtime/base/map.h"
#include "runtime/train/checkpoint_internal.h"
#include "runtime/train/json_write.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".part-" /* what folders are called that are not, or no longer, checkpoints */

static graphc_status no_memory(ErrorText e) {
    return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a checkpoint");
}

static graphc_status failed(ErrorText e, const char *path, const char *what) {
    return error_set(e, GRAPHC_IO, "%s %s: %s", path, what, strerror(errno));
}

/* --- folders -------------------------------------------------------------------------------- */

/* A folder without folders in it. What cannot be removed now is removed later. */
static void remove_folder(const char *path) {
    DIR *d = opendir(path);
    if (!d) return;
    for (const struct dirent *f; (f = readdir(d));)
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..")) unlinkat(dirfd(d), f->d_name, 0);
    closedir(d);
    rmdir(path);
}

static void remove_in(const char *root, const char *name) {
    char *path = folder_join(root, name);
    if (path) remove_folder(path);
    free(path);
}

/* Folders that were being written or removed, and pointers that were being replaced (file.h). */
static bool is_left_over(const char *name) {
    return strncmp(name, TEMPORARY, strlen(TEMPORARY)) == 0 || strncmp(name, "latest.", 7) == 0 ||
           strncmp(name, "best.", 5) == 0;
}

static void remove_left_over(const char *root) {
    DIR *d = opendir(root);
    if (!d) return;
    for (const struct dirent *f; (f = readdir(d));)
        if (is_left_over(f->d_name) && unlinkat(dirfd(d), f->d_name, 0) != 0)
            remove_in(root, f->d_name);
    closedir(d);
}

graphc_status checkpoint_begin(CheckpointWriter *w, const char *root, ErrorText e) {
    char why[256], name[64];
    snprintf(name, sizeof name, TEMPORARY "%ld", (long)getpid());
    *w = (CheckpointWriter){.root = strdup(root), .folder = folder_join(root, name), .over = true};
    graphc_status st = GRAPHC_OK;
    if (!w->root || !w->folder)
        st = no_memory(e);
    else if ((st = folder_make(root, why)) != GRAPHC_OK)
        st = error_set(e, st, "%s %s", root, why);
    if (st == GRAPHC_OK) {
        remove_left_over(root);
        w->over = mkdir(w->folder, 0777) != 0;
        if (w->over) st = failed(e, w->folder, "cannot be made");
    }
    if (st != GRAPHC_OK) checkpoint_abandon(w);
    return st;
}

char *checkpoint_path(const CheckpointWriter *w, const char *name) {
    return folder_join(w->folder, name);
}

void checkpoint_abandon(CheckpointWriter *w) {
    if (!w->over) remove_folder(w->folder);
    free(w->root);
    free(w->folder);
    *w = (CheckpointWriter){.over = true};
}

/* --- checkpoint.json ------------------------------------------------------------------------ */

static int is_file(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static graphc_status put_file(JsonWrite *j, const char *folder, const char *name, ErrorText e) {
    FileMap m;
    char why[256], hash[32], *path = folder_join(folder, name);
    graphc_status st = path ? file_map(path, &m, why) : no_memory(e);
    free(path);
    if (st != GRAPHC_OK) return path ? error_set(e, st, "%s %s", name, why) : st;
    snprintf(hash, sizeof hash, CHECKPOINT_HEX, (unsigned long long)hash_bytes(m.data, m.size, 0));
    jw_object(j, name);
    jw_i64(j, "bytes", (int64_t)m.size);
    jw_string(j, "xxh3", hash);
    jw_end(j);
    file_unmap(&m);
    return GRAPHC_OK;
}

static graphc_status put_files(JsonWrite *j, const char *folder, ErrorText e) {
    struct dirent **files;
    int n = scandir(folder, &files, is_file, alphasort);
    if (n < 0) return failed(e, folder, "cannot be read");
    graphc_status st = GRAPHC_OK;
    jw_object(j, "files");
    for (int i = 0; i < n; i++) {
        if (st == GRAPHC_OK) st = put_file(j, folder, files[i]->d_name, e);
        free(files[i]);
    }
    free(files);
    jw_end(j);
    return st;
}

static void put_info(JsonWrite *j, const CheckpointInfo *info) {
    jw_i64(j, "version", CHECKPOINT_VERSION);
    jw_i64(j, "step", (int64_t)info->step);
    jw_i64(j, "tokens", (int64_t)info->tokens);
    jw_i64(j, "epoch", (int64_t)info->epoch);
    jw_i64(j, "position", (int64_t)info->position);
    jw_i64(j, "waiting", (int64_t)info->waiting);
    jw_i64(j, "held_out", (int64_t)info->held);
    if (info->unmeasured) jw_bool(j, "unmeasured", true);
    jw_f64(j, "loss", info->loss);
    jw_f64(j, "best_loss", info->best_loss);
    jw_object(j, "options");
    for (uint32_t i = 0; i < info->noptions; i++)
        jw_string(j, info->options[i].key, info->options[i].value);
    jw_end(j);
}

static graphc_status write_json(const CheckpointWriter *w, const CheckpointInfo *info,
                                ErrorText e) {
    JsonWrite j = {.indent = 2};
    Text whole = {0};
    char why[256], *path = checkpoint_path(w, CHECKPOINT_JSON);
    jw_object(&j, NULL);
    put_info(&j, info);
    graphc_status st = put_files(&j, w->folder, e);
    jw_end(&j);
    text_put(&j.text, "\n");
    if (st == GRAPHC_OK && (j.text.failed || !path)) st = no_memory(e);
    if (st == GRAPHC_OK) {
        uint64_t hash = hash_bytes(j.text.p + 1, j.text.n - 1, 0); /* all after the { */
        text_printf(&whole, CHECKPOINT_FIRST, (unsigned long long)hash);
        text_putn(&whole, j.text.p + 1, j.text.n - 1);
        st = whole.failed ? no_memory(e) : file_write(path, whole.p, whole.n, why);
        if (st != GRAPHC_OK && !whole.failed) st = error_set(e, st, CHECKPOINT_JSON " %s", why);
    }
    text_free(&whole);
    text_free(&j.text);
    free(path);
    return st;
}

/* --- names ---------------------------------------------------------------------------------- */

/* Renames to a free name, also on file systems that cannot promise that it is. */
static bool name_free(const char *from, const char *to) {
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    if (access(to, F_OK) != 0) return rename(from, to) == 0;
    errno = EEXIST;
    return false;
}

/* Where there is a checkpoint of that name already, they change places, and the old one goes. */
static graphc_status give_name(CheckpointWriter *w, const char *name, ErrorText e) {
    char *path = folder_join(w->root, name);
    if (!path) return no_memory(e);
    graphc_status st = GRAPHC_OK;
    if (name_free(w->folder, path))
        w->over = true;
    else if (errno != EEXIST ||
             renameat2(AT_FDCWD, w->folder, AT_FDCWD, path, RENAME_EXCHANGE) != 0)
        st = failed(e, path, "cannot be named");
    folder_sync_of(path);
    free(path);
    return st;
}

static graphc_status point(const char *root, const char *which, const char *name, ErrorText e) {
    char why[256], text[sizeof(CheckpointName) + 1], *path = folder_join(root, which);
    if (!path) return no_memory(e);
    snprintf(text, sizeof text, "%s\n", name);
    graphc_status st = file_write(path, text, strlen(text), why);
    if (st != GRAPHC_OK) st = error_set(e, st, "%s %s", path, why);
    free(path);
    return st;
}

graphc_status checkpoint_commit(CheckpointWriter *w, const CheckpointInfo *info, bool best,
                                ErrorText e) {
    char name[sizeof(CheckpointName)];
    snprintf(name, sizeof name, "step-%08llu", (unsigned long long)info->step);
    graphc_status st = write_json(w, info, e);
    if (st == GRAPHC_OK) st = give_name(w, name, e);
    if (st == GRAPHC_OK) st = point(w->root, "latest", name, e);
    if (st == GRAPHC_OK && best) st = point(w->root, "best", name, e);
    checkpoint_abandon(w);
    return st;
}

/* -------------------------------------------------------------------------------------------- */

static int is_checkpoint(const struct dirent *d) {
    return checkpoint_is_name(d->d_name);
}

static unsigned long long step_of(const struct dirent *d) {
    return strtoull(d->d_name + 5, NULL, 10);
}

static int later_first(const struct dirent **a, const struct dirent **b) {
    return step_of(*a) < step_of(*b) ? 1 : -1;
}

/* A checkpoint loses its name before its files. */
static void drop(const char *root, const char *name) {
    char *from = folder_join(root, name), *to = folder_join(root, TEMPORARY "old");
    if (from && to) {
        remove_folder(to);
        if (rename(from, to) == 0) remove_folder(to);
    }
    free(from);
    free(to);
}

graphc_status checkpoint_prune(const char *root, uint32_t keep, ErrorText e) {
    struct dirent **d;
    CheckpointName latest = {""}, best = {""};
    int n = scandir(root, &d, is_checkpoint, later_first);
    if (n < 0) return failed(e, root, "cannot be read");
    (void)checkpoint_pointer(root, "latest", &latest);
    (void)checkpoint_pointer(root, "best", &best);
    for (int i = 0; i < n; i++) {
        const char *name = d[i]->d_name;
        if ((uint32_t)i >= keep && strcmp(name, latest.text) && strcmp(name, best.text))
            drop(root, name);
        free(d[i]);
    }
    free(d);
    return GRAPHC_OK;
}
