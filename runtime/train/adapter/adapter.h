/* LoRA adapters as PEFT keeps them: a folder with adapter_config.json and
 * adapter_model.safetensors.
 *
 * A module of the model adds scale * B(A(x)) to what it computes. Of a linear layer A is [r, in]
 * and B [out, r], also where the layer keeps its weight as [in, out] (fan_in_fan_out); of an
 * embedding A is [r, vocabulary] and B [size, r]; of a convolution A has the kernel's axes and B
 * axes of size 1. With DoRA a magnitude [out] is there too. scale is alpha / r, with rsLoRA alpha /
 * sqrt(r), r and alpha being the module's own where a pattern matches its path. */
#ifndef TRAIN_ADAPTER_H
#define TRAIN_ADAPTER_H

#include "runtime/train/safetensors.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_MODEL  "adapter_model.safetensors"

typedef struct AdapterList { /* of names, none of them empty */
    const char **v;
    uint32_t n;
} AdapterList;

/* "rank_pattern" and "alpha_pattern": the first pattern that matches the end of a module's path,
 * from a dot or the beginning on, gives the value. */
typedef struct AdapterPattern {
    const char *pattern; /* a Python regular expression, of those that are POSIX's too */
    double value;
} AdapterPattern;
typedef struct AdapterPatterns {
    AdapterPattern *v;
    uint32_t n;
} AdapterPatterns;

typedef enum AdapterBias { ADAPTER_none, ADAPTER_all, ADAPTER_lora_only } AdapterBias;

typedef struct AdapterConfig {
    int64_t r;
    double alpha, dropout;
    bool rslora, dora, fan_in_fan_out;
    bool lora_bias; /* B has a bias of its own */
    AdapterBias bias;
    AdapterList targets;         /* names, or one regular expression for the whole path */
    bool targets_regex;          /* also for "all-linear" */
    AdapterList modules_to_save; /* trained as a whole */
    AdapterPatterns rank_pattern, alpha_pattern;
    const char *base_model, *revision, *task_type; /* NULL: null */
    AdapterList unknown;                           /* fields that were passed over; not written */
    char *text;                                    /* what the strings lie in, after reading */
} AdapterConfig;
#define ADAPTER_CONFIG_INIT                                                                        \
    { .r = 8, .alpha = 8 }

/* The defaults are PEFT's. GRAPHC_UNSUPPORTED: another kind than LoRA, or a field that changes what
 * the adapter computes in a way that is not known here. On failure nothing is left to free. */
GRAPHC_MUST_USE graphc_status adapter_config_read(const char *path, AdapterConfig *out,
                                                  ErrorText e);
/* The same of text that was read already. */
GRAPHC_MUST_USE graphc_status adapter_config_parse(const char *text, size_t n, AdapterConfig *out,
                                                   ErrorText e);
void adapter_config_free(AdapterConfig *c); /* one that was read */
/* As text, from malloc, to be written. */
GRAPHC_MUST_USE graphc_status adapter_config_text(const AdapterConfig *c, char **out, size_t *n,
                                                  ErrorText e);
/* Rank and scale of the module at `path`. GRAPHC_UNSUPPORTED: a pattern that is not POSIX's. */
GRAPHC_MUST_USE graphc_status adapter_scale(const AdapterConfig *c, const char *path, int64_t *rank,
                                            double *scale, ErrorText e);

typedef enum AdapterKind { ADAPTER_linear, ADAPTER_embedding, ADAPTER_convolution } AdapterKind;

typedef struct AdapterModule {
    const char *path; /* in the model, "model.layers.0.self_attn.q_proj" */
    AdapterKind kind;
    SafeTensor a, b;            /* their names are not looked at when writing */
    SafeTensor magnitude, bias; /* .dtype DT_none: there is none */
    double scale;               /* when read */
} AdapterModule;

typedef struct Adapter {
    AdapterConfig config;
    Safetensors file;
    AdapterModule *modules; /* sorted by path */
    uint32_t nmodules;
    SafeTensor *whole; /* of modules_to_save and biases; names as in the model */
    uint32_t nwhole;
    char *paths;
} Adapter;

/* Reads a folder. GRAPHC_INVALID: tensors that are missing, too many, of the wrong shape, rank or
 * type, or not finite, by name. The message begins with the file's name. */
GRAPHC_MUST_USE graphc_status adapter_read(const char *folder, Adapter *out, ErrorText e);
void adapter_free(Adapter *a);
/* Whether the adapter was meant to learn this parameter of the model. PEFT keeps others too:
 * embeddings and heads as the model had them. */
bool adapter_trains(const AdapterConfig *c, const char *name);
/* Writes a folder, which is made: tensors, then the configuration. GRAPHC_USAGE unless PEFT would
 * find every module: its path is a target's and its rank what the configuration says. */
GRAPHC_MUST_USE graphc_status adapter_write(const char *folder, const AdapterConfig *c,
                                            const AdapterModule *modules, uint32_t nmodules,
                                            const SafeTensor *whole, uint32_t nwhole, ErrorText e);

/* What of a model can be adapted. */
typedef struct AdapterTarget {
    const char *path;
    int64_t in, out; /* of an embedding: vocabulary, size */
} AdapterTarget;
/* GRAPHC_INVALID, naming the module and what the model has: a module that the model lacks or has in
 * another size. */
GRAPHC_MUST_USE graphc_status adapter_match(const Adapter *a, const AdapterTarget *targets,
                                            uint32_t n, ErrorText e);

#endif
