/* A scan of protobuf wire bytes before protobuf-c sees them. protobuf-c recurses without limit,
 * copies every byte and cannot be told a budget; this scan does not recurse, bounds all of that and
 * takes tensor payloads out, so that they stay in the file's mapping. */
#ifndef FRONTEND_PRESCAN_H
#define FRONTEND_PRESCAN_H

#include "runtime/base/diag.h"
#include <protobuf-c/protobuf-c.h>

/* In the compacted bytes every TensorProto.raw_data of at least PRESCAN_HANDLE bytes is replaced by
 * a handle of exactly PRESCAN_HANDLE bytes: u64 offset and u64 length in the scanned bytes, zeros.
 * Shorter payloads stay, so a raw_data of PRESCAN_HANDLE bytes is always a handle. */
#define PRESCAN_HANDLE    32
#define PRESCAN_MAX_DEPTH 100

typedef struct Prescan {
    uint8_t *data; /* compacted bytes; malloc'd, freed by prescan_free */
    size_t size;
    uint64_t file_size;
} Prescan;

/* Checks wire types, lengths, UTF-8, nesting and doubled singular fields against the schema that
 * protobuf-c carries. Unknown fields are dropped. Errors are D_WIRE or D_LIMIT with a byte offset.
 */
graphc_status prescan(const ProtobufCMessageDescriptor *root, const uint8_t *data, uint64_t size,
                      DiagSink *d, Prescan *out);
void prescan_free(Prescan *p);

/* Unpacks the compacted bytes within the memory budget of 64 MiB + 32 x file size. The message is
 * freed by prescan_message_free. NULL after an error. */
typedef struct PrescanMessage PrescanMessage;
PrescanMessage *prescan_unpack(const Prescan *p, const ProtobufCMessageDescriptor *root,
                               DiagSink *d);
ProtobufCMessage *prescan_root(PrescanMessage *m);
void prescan_message_free(PrescanMessage *m); /* NULL is allowed */

#endif
