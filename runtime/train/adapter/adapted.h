/* Adapters between a session's states and PEFT's folders: states "PATH.lora_A.weight" and
 * "PATH.lora_B.weight" are the tensors of module PATH. */
#ifndef TRAIN_ADAPTED_H
#define TRAIN_ADAPTED_H

#include "runtime/graphc.h"
#include "runtime/train/adapter/adapter.h"

/* Writes the modules at these paths as a folder; the configuration's targets become the paths. */
GRAPHC_MUST_USE graphc_status adapted_write(const char *folder, const AdapterConfig *c,
                                            const char *const *paths, uint32_t npaths,
                                            const graphc_plan *plan, graphc_session *s,
                                            ErrorText e);
/* The states become what the adapter holds, for a plan that multiplies its products by `scale`:
 * what a module's own differs goes into B. GRAPHC_INVALID: the plan has other modules, or of other
 * sizes. */
GRAPHC_MUST_USE graphc_status adapted_load(const Adapter *a, double scale, const graphc_plan *plan,
                                           graphc_session *s, ErrorText e);
/* The same for a plan with adapters of configuration `plans`; modules that `a` lacks add nothing, and
 * none does where a is NULL. What does not fit is said before anything changes. */
GRAPHC_MUST_USE graphc_status adapted_switch(const Adapter *a, const AdapterConfig *plans,
                                             const graphc_plan *plan, graphc_session *s,
                                             ErrorText e);

#endif
