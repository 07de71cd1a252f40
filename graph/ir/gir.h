/* What the printer and the parser of .gir share. How attributes are spelled: attr.def.
 *
 *   graph NAME  symbols batch in 1..256, n data in 0..80 hint 8
 *     file "weights.bin"
 *     %1  f32[batch, 768]  input 0 "x"
 *     %2  f32[768]         const {0.5...} "bias"
 *     %3  f32[1, 768]      reshape %2
 *     %4  f32[batch, 768]  expand %3
 *     %5  f32[batch, 768]  add %1, %4    # node 3 Add "y"
 *     %6  f32[768]         state 0 "m" {0...}    # its initial elements; none: zeros
 *     assume batch = n
 *     entry "step"                # if any, before outputs and writes
 *     output "y" %5
 *     write "m" %2 entries=[0]    # of those alone
 *
 * A control node is followed by its bodies in braces, each a graph. */
#ifndef GRAPH_GIR_H
#define GRAPH_GIR_H

#include "graph/ir/attr.h"

extern const char *const gir_sym_kinds[SYM_INDIRECT + 1];

#endif
