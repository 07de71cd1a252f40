/* How PEFT calls tensors. */
#ifndef TRAIN_ADAPTER_NAMES_H
#define TRAIN_ADAPTER_NAMES_H

#include "runtime/train/adapter/adapter.h"

#define ADAPTER_PREFIX "base_model.model."

typedef enum AdapterPartKind {
    PART_a,
    PART_b,
    PART_magnitude,
    PART_bias,
    PART_COUNT
} AdapterPartKind;

/* What comes after a module's path. */
typedef struct AdapterPart {
    const char *suffix;
    AdapterKind kind;
    AdapterPartKind part;
} AdapterPart;
/* The part that a name ends as, and how long the module's path in front of it is; NULL: none. */
const AdapterPart *adapter_part_of(const char *name, size_t *path_size);
const char *adapter_suffix(AdapterPartKind part, AdapterKind kind);
SafeTensor *adapter_tensor(AdapterModule *m, AdapterPartKind part);

/* What stands between an adapted module's path and its own parameters' names. */
#define ADAPTER_BASE ".base_layer"

#endif
