/* What a file is that was taken for another. */
#ifndef FRONTEND_IMPORT_FILE_KIND_H
#define FRONTEND_IMPORT_FILE_KIND_H

#include <stdint.h>

/* In words ("a gzip file"), by how it begins; NULL: nothing that is known. */
const char *file_kind(const uint8_t *data, uint64_t size);

#endif
