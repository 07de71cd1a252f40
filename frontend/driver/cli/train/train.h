/* What train and finetune are asked for, as each stage takes it. */
#ifndef CLI_TRAIN_H
#define CLI_TRAIN_H

#include "frontend/driver/cli/cli.h"
#include "runtime/train/trainer/run.h"

/* Options that do not go together or have no such value; defaults in place of what is not given. */
graphc_status train_check(Cli *c);
/* The rest is for options that were checked. */
graphc_training train_compile_options(const Cli *c);
RunOptions train_run_options(const Cli *c); /* without what the model says */
bool train_skips(const TrainArgs *a);       /* --on-nan skip */
/* What a run that goes on has to have been started with. */
void train_list_said(Cli *c, const Graph *model, RunOptions *o);

#endif
