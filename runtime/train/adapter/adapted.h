/* Adapters between a session's states and PEFT's folders. States have PEFT's names:
 * "PATH.lora_A.weight" and the like are tensors of module PATH; other parameters are the model's
 * own ("lm_head.weight"). What a plan's adapters are is in its note "adapter", an
 * adapter_config.json whose targets are their paths. */
#ifndef TRAIN_ADAPTED_H
#define TRAIN_ADAPTED_H

#include "runtime/graphc.h"
#include "runtime/train/adapter/adapter.h"

/* Writes all that the plan adapts as a folder. plans: its note. */
GRAPHC_MUST_USE graphc_status adapted_write(const char *folder, const AdapterConfig *plans,
                                            graphc_session *s, ErrorText e);
/* The states, of a plan for several adapters those of place `slot`, become what the adapter holds:
 * where it has nothing the model is as it was, and everywhere if a is NULL. Where its scales are
 * not the plan's, B takes the difference; a rank below the plan's is filled up with zeros. What
 * does not fit is said before anything changes: GRAPHC_USAGE: no such place; GRAPHC_INVALID: other
 * modules or sizes. */
GRAPHC_MUST_USE graphc_status adapted_switch(const Adapter *a, const AdapterConfig *plans,
                                             uint32_t slot, graphc_session *s, ErrorText e);

#endif
