/* Files: mapped whole for reading, replaced by rename for writing. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "runtime/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct FileMap {
    const uint8_t *data; /* NULL when size is 0 */
    uint64_t size;
} FileMap;

/* Maps a whole regular file read-only and private. On failure `why` (256 bytes) says what is wrong
 * without the path. */
graphc_status file_map(const char *path, FileMap *out, char why[256]);
/* Opens `relative` beneath the folder of `base_path` and maps it. Absolute paths, "..",
 * backslashes, symbolic links and files with several hard links are GRAPHC_INVALID, as a file may
 * name them to reach others; what cannot be read is GRAPHC_IO. */
graphc_status file_map_beneath(const char *base_path, const char *relative, FileMap *out,
                               char why[256]);
void file_unmap(FileMap *m);

/* Writes a new file in the same folder, fsync and rename: readers see the old file or the whole new
 * one, and a process that is killed leaves no part and, unless it was just replacing a file, no
 * temporary one. Devices and pipes are written in place; "-" is standard output. */
graphc_status file_write(const char *path, const void *data, size_t size, char why[256]);

/* Makes a folder for files to be written to; one that is there already does as well. */
GRAPHC_MUST_USE graphc_status folder_make(const char *path, char why[256]);

#endif
