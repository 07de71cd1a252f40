/* What each kind of group does in the stages: one row each. */
#include "fusion/special/special.h"

const KindRow fuse_kinds[GROUP_KINDS] = {
    [GROUP_map] = {.facts = map_facts},
    [GROUP_dot] = {.facts = dot_facts},
    [GROUP_attention] = {.word = "attention", .facts = attention_facts},
    [GROUP_attention_gradient] = {.word = "attention_gradient", .facts = gradient_facts},
    [GROUP_attention_gradients] = {.word = "attention_gradients", .facts = gradient_facts},
    [GROUP_pack] = {.keeps_axes = true, .store = pack_store, .lower = pack_lower},
    [GROUP_join] = {.no_kernel = true, .store = concat_store},
    [GROUP_scan] = {.store = scan_store, .lower = scan_lower},
    [GROUP_sort] = {.store = scan_store, .lower = sort_lower},
    [GROUP_compact] = {.store = compact_store, .buffers = compact_buffers, .lower = compact_lower},
    [GROUP_scatter] = {.store = scatter_store, .lower = scatter_lower},
    [GROUP_control] = {.no_kernel = true,
                       .store = control_store,
                       .buffers = control_buffers,
                       .emit = control_emit},
};
