/* Files: mapped whole for reading, replaced by rename for writing. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "runtime/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct FileMap {
    const uint8_t *data; /* of an empty file, too, no NULL */
    uint64_t size;
    bool lent; /* the bytes are another's, and stay when it is unmapped */
} FileMap;

/* Where symbolic links may lead to, besides the folder that they are in. */
typedef struct FileLinks {
    bool anywhere;
    const char *root; /* into this folder and below; NULL: none */
    bool of_base; /* into the folder in which the base file really lies, being a link itself, and
                     below: how caches lay out downloads */
} FileLinks;

/* Maps a whole regular file read-only and private. On failure `why` (256 bytes) says what is wrong
 * without the path. */
graphc_status file_map(const char *path, FileMap *out, char why[256]);
/* Opens `relative` beneath the folder of `base_path` and maps it. Symbolic links are followed where
 * the file that is opened lies beneath that folder or where `links` lets them lead. Absolute paths,
 * "..", backslashes and other links are GRAPHC_INVALID, as a file may name them to reach others;
 * what cannot be read is GRAPHC_IO. */
graphc_status file_map_beneath(const char *base_path, const char *relative, FileLinks links,
                               FileMap *out, char why[256]);
/* The same, and leaves it open as *kept, if that is not NULL, for file_read. */
graphc_status file_open_beneath(const char *base_path, const char *relative, FileLinks links,
                                FileMap *out, int *kept, char why[256]);
/* Bytes of an open file; false: it does not give them all. */
bool file_read(int fd, uint64_t at, void *to, uint64_t bytes);
/* NULL if `relative` is such a path, else what is wrong with it. */
const char *file_path_fault(const char *relative);
void file_unmap(FileMap *m);
/* Whole pages of these bytes of a mapping count no more: they come back from the file when read. */
void file_rest(const void *p, uint64_t bytes);

/* Writes a new file in the same folder, fsync and rename: readers see the old file or the whole new
 * one, and a process that is killed leaves no part and, unless it was just replacing a file, no
 * temporary one. Devices and pipes are written in place; "-" is standard output. */
graphc_status file_write(const char *path, const void *data, size_t size, char why[256]);

/* The same in pieces: begin, then put and patch, then commit or abandon. Nothing is at `path`
 * before the commit, which ends the writer whatever its status; after another call's failure
 * abandon it. */
typedef struct FileWriter {
    char *path, *temp;
    size_t room; /* of temp */
    int fd;
    bool direct;   /* a device, a pipe, standard output: written in place */
    uint64_t size; /* bytes put so far */
} FileWriter;
GRAPHC_MUST_USE graphc_status file_begin(const char *path, FileWriter *w, char why[256]);
GRAPHC_MUST_USE graphc_status file_put(FileWriter *w, const void *data, size_t size, char why[256]);
/* Replaces bytes that were put before. Not on what is written in place. */
GRAPHC_MUST_USE graphc_status file_patch(FileWriter *w, uint64_t offset, const void *data,
                                         size_t size, char why[256]);
GRAPHC_MUST_USE graphc_status file_commit(FileWriter *w, char why[256]);
void file_abandon(FileWriter *w); /* also one that is over */

/* Makes the names in the folder that `path` lies in durable; a file system that cannot is no
 * failure. */
void folder_sync_of(const char *path);
/* "FOLDER/NAME" from malloc; NULL: not enough memory. */
char *folder_join(const char *folder, const char *name);

/* Makes a folder for files to be written to; one that is there already does as well. */
GRAPHC_MUST_USE graphc_status folder_make(const char *path, char why[256]);

#endif
