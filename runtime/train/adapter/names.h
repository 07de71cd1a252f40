/* How PEFT calls files and tensors. */
#ifndef TRAIN_ADAPTER_NAMES_H
#define TRAIN_ADAPTER_NAMES_H

#include "runtime/train/adapter/adapter.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_MODEL  "adapter_model.safetensors"
#define ADAPTER_PREFIX "base_model.model."

typedef enum AdapterPartKind {
    PART_a,
    PART_b,
    PART_magnitude,
    PART_bias,
    PART_COUNT
} AdapterPartKind;

/* What comes after a module's path; written with the first suffix that fits. */
typedef struct AdapterPart {
    const char *suffix;
    AdapterKind kind;
    AdapterPartKind part;
} AdapterPart;
enum { ADAPTER_PARTS = 7 };
extern const AdapterPart adapter_parts[ADAPTER_PARTS];

#endif
