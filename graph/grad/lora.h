/* Low-rank adapters as a graph transform: y = x W becomes y = x W + s (x A') B', with A [r, in] and
 * B [out, r] as PEFT lays them out (Hu et al. 2021; s = alpha / r, rsLoRA: alpha / sqrt(r),
 * Kalajdzievski 2023). The product B A is never formed: the order of the two small contractions is
 * what makes the adapter cheap, forward and backward.
 *
 * A linear layer is a contraction whose right operand is a named constant, below views and casts.
 * Its module is what the exporter's node metadata says, or else the constant's name without
 * ".weight". */
#ifndef GRAPH_GRAD_LORA_H
#define GRAPH_GRAD_LORA_H

#include "graph/ir/ir.h"

typedef struct LoraSpec {
    uint32_t rank;
    double alpha;
    bool rslora;
    double dropout; /* of what goes into A; see lora_apply */
    const char *targets; /* see lora_parse */
    const char *root;    /* paths begin below this module; NULL: see lora_apply */
} LoraSpec;

/* A layer that has an adapter; the states of `to` are named "PATH.lora_A.weight",
 * "PATH.lora_B.weight". B starts as zeros; what A starts as is the caller's to write. */
typedef struct LoraLayer {
    const char *path; /* "model.layers.0.self_attn.q_proj" */
    Value a, b;       /* states of the new graph, f32 */
    int64_t in, out;
} LoraLayer;

typedef struct LoraLayers {
    VEC(LoraLayer) v;
    double scale;
} LoraLayers;

/* "r=16,alpha=32,dropout=0.1,rslora,root=m,targets=q_proj,v_proj": what stands behind targets= is `all-linear`
 * (all but the layer that makes an output), names of modules' last parts, or an extended regular
 * expression (POSIX) of whole paths. Defaults as PEFT's: r=8, alpha=8. */
graphc_status lora_parse(Arena *a, DiagSink *d, const char *text, LoraSpec *out);

/* The graph with adapters. Paths are those of the model that was wrapped to be exported: where all
 * layers lie in one module and it holds one of transformers' heads ("m.lm_head"), they begin below
 * it. Needs: a graph as imported, so that each layer is one contraction. Keeps: meaning, as long as
 * B is zero. With dropout the graph has an input `generator`, an i64 scalar that says which numbers
 * are drawn; where it is negative nothing is dropped. D_USAGE where nothing matches: the message lists the layers. */
graphc_status lora_apply(const Graph *g, const LoraSpec *s, Graph **out, LoraLayers *layers);

#endif
