/* Low-rank adapters as a graph transform: y = x W becomes y = x W + s (x A') B', with A [r, in] and
 * B [out, r] as PEFT lays them out (Hu et al. 2021; s = alpha / r, rsLoRA: alpha / sqrt(r),
 * Kalajdzievski 2023). The product B A is never formed: the order of the two small contractions is
 * what makes the adapter cheap, forward and backward. An embedding's A is [r, rows]: its columns
 * are looked up as the rows of W are.
 *
 * DoRA (Liu et al. 2024) gives each column of W + s (BA)' a length m of its own: with c = m /
 * ||.||, y = c (x W + s (x A') B'). No gradient flows through the norm, as in PEFT, and it needs no
 * product B A either: of a column it is ||w||^2 + 2s b.(A w) + s^2 b.(A A')b. */
#ifndef GRAPH_GRAD_LORA_LORA_H
#define GRAPH_GRAD_LORA_LORA_H

#include "graph/grad/layer.h"

/* Paths that end so have this rank or alpha: an extended regular expression (POSIX), of the path
 * from a dot or its beginning on. */
typedef struct LoraPattern {
    const char *text;
    double value;
} LoraPattern;
typedef VEC(LoraPattern) LoraPatterns;

typedef enum LoraBias { LORA_BIAS_none, LORA_BIAS_all, LORA_BIAS_lora_only } LoraBias;

/* A module of an adapter that is there already. */
typedef struct LoraModule {
    const char *path;
    LayerKind kind;
    uint32_t rank;
    bool magnitude, bias; /* of DoRA; of B */
} LoraModule;

/* A parameter of the model that an adapter has in full ("lm_head.weight"). */
typedef struct LoraParameter {
    const char *name;
    /* its elements, where it may be the model's own, which is none to learn; or NULL */
    const void *copy;
    uint64_t bytes;
    DType dtype; /* of the copy */
} LoraParameter;

typedef struct LoraSpec {
    uint32_t rank;
    double alpha;
    bool rslora, dora;
    double dropout;             /* of what goes into A; see lora_apply */
    LoraBias bias;              /* of the model: which are learnt too */
    const char *targets;        /* see lora_parse */
    const char *root;           /* paths begin below this module; NULL: layer_root */
    LoraPatterns ranks, alphas; /* of single modules; the first that matches counts */
    VEC(const char *) save;     /* modules that are learnt as a whole: their paths end so */

    /* For adapters that are there: these modules in place of targets, with a scale of 1, which is
     * what rank and alpha say. */
    const LoraModule *modules;
    uint32_t nmodules;
    const LoraParameter *whole;
    uint32_t nwhole;
    uint32_t slots; /* so many adapters side by side; 0: one. See lora_apply */
} LoraSpec;

/* A layer that has an adapter. Its states in the new graph are named as PEFT names tensors:
 * "PATH.lora_A.weight", "PATH.lora_B.weight", of an embedding "PATH.lora_embedding_A", with DoRA
 * "PATH.lora_magnitude_vector". B starts as zeros (of an embedding A does), the magnitude as the
 * norms of W's columns; what the other starts as is the caller's to write. */
typedef struct LoraLayer {
    const char *path;
    LayerKind kind;
    Value a, b;            /* states of the new graph, f32, */
    Value magnitude, bias; /* likewise, or 0: of DoRA; of B */
    int64_t in, out;
} LoraLayer;

/* A parameter of the model that is learnt as a whole; its state has this name. */
typedef struct LoraWhole {
    const char *name; /* below the root: "lm_head.weight" */
    Value state;
} LoraWhole;

typedef struct LoraLayers {
    VEC(LoraLayer) v;
    VEC(LoraWhole) whole;
    VEC(Value) held; /* no gradient flows through these */
} LoraLayers;

/* "r=16,alpha=32,dropout=0.1,rslora,dora,bias=none|all|lora_only,save=MODULE,rank:PATTERN=8,
 * alpha:PATTERN=16,root=m,targets=q_proj,v_proj": what stands behind targets= is `all-linear` (all
 * but the layer that makes an output, and no embedding), names of modules' last parts, or an
 * extended regular expression (POSIX) of whole paths. save=, rank: and alpha: may come several
 * times. Defaults as PEFT's: r=8, alpha=8. */
graphc_status lora_parse(Arena *a, DiagSink *d, const char *text, LoraSpec *out);

/* The graph with adapters. Needs: a graph as imported, so that each layer is one contraction or
 * gather; initializers may be constants or states, and are constants after it, but for those that
 * are learnt. Keeps: meaning, as long as B is zero. With dropout the graph has an input
 * `generator`, an i64 scalar that says which numbers are drawn; where it is negative nothing is
 * dropped.
 *
 * With slots the states hold that many adapters, [slots, r, in] and [slots, out, r], and an input
 * `adapter`, i64 of the size of the first input's first axis, says which of them each of its rows
 * goes through; a negative number: none.
 *
 * D_USAGE where a target or pattern matches nothing, or a module or parameter is missing: the
 * message lists what is there. */
graphc_status lora_apply(const Graph *g, const LoraSpec *s, Graph **out, LoraLayers *layers);

/* Whether the pattern is that of the path's end. */
graphc_status lora_matches(const char *pattern, DiagSink *d, const char *path, bool *out);
/* Rank and scale of the layer at this path. */
graphc_status lora_scale(const LoraSpec *s, DiagSink *d, const char *path, uint32_t *rank,
                         double *scale);

#endif
