/* Between checkpoint_write.c and checkpoint_read.c. */
#ifndef TRAIN_CHECKPOINT_INTERNAL_H
#define TRAIN_CHECKPOINT_INTERNAL_H

#include "runtime/train/checkpoint.h"

#define CHECKPOINT_JSON    "checkpoint.json"
#define CHECKPOINT_VERSION 1
#define CHECKPOINT_HEX     "%016llx" /* how checksums are written */
enum { CHECKPOINT_HEX_DIGITS = 16 };
/* checkpoint.json begins with its own checksum, of all bytes after this many. */
#define CHECKPOINT_FIRST "{\"xxh3\": \"" CHECKPOINT_HEX "\","
enum { CHECKPOINT_FIRST_BYTES = sizeof "{\"xxh3\": \"" - 1 + CHECKPOINT_HEX_DIGITS + 2 };

char *checkpoint_join(const char *folder, const char *name);
/* The name that a pointer file ("latest", "best") holds; false: there is none, or no valid one. */
typedef struct CheckpointName {
    char text[64];
} CheckpointName;
bool checkpoint_pointer(const char *root, const char *which, CheckpointName *out);
bool checkpoint_is_name(const char *name); /* "step-" and digits */

#endif
