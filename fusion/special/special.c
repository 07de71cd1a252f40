/* Kernels with a structure of their own: which is whose. */
#include "fusion/special/special.h"

void special_root(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    switch (n->op) {
    case OP_loop:
    case OP_if: control_root(f, v); break;
    case OP_scatter: scatter_root(f, v); break;
    case OP_compact: row_root(f, v, GROUP_compact, 0); break;
    default: {
        bool sort = op_info[n->op].cls == OPC_SORT;
        row_root(f, v, sort ? GROUP_sort : GROUP_scan, (uint32_t)n->attr.scan.axis);
    }
    }
}

void special_lower(Body *b, Value v) {
    IdxId idx = b->g->roots.v[0].idx;
    switch (graph_node(b->f->g, v)->op) {
    case OP_scatter: scatter_lower(b, v, idx); break;
    case OP_compact: compact_lower(b, v, idx); break;
    default: row_lower(b, v, idx); break;
    }
}
