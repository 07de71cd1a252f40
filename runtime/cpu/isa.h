/* What the processor can run. */
#ifndef RUNTIME_CPU_ISA_H
#define RUNTIME_CPU_ISA_H

#include "runtime/plan.h"
#include <stdbool.h>

/* True if code of this form runs here: every feature of the psABI level, and the operating system
 * saves the registers. Asks it for those of AMX, which are the process's from then on. */
bool isa_supports(PlanForm form);

/* Of code for a CPU what this one would take, at most of form `most`, as a set: the best whole
 * image, and all that adds to it. 0: none. */
uint32_t isa_forms(PlanForm most);

/* Executable copy of an image: written once, then read and execute only. NULL: out of memory. */
void *isa_load_image(const void *code, uint64_t size);
void isa_unload_image(void *image, uint64_t size);

#endif
