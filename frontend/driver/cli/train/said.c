/* What a run that goes on has to have been started with. */
#include "frontend/driver/cli/train/train.h"
#include "graph/grad/layer.h"
#include "runtime/base/map.h"
#include "runtime/plan.h"

#include <string.h>

static const char *count_text(Cli *c, uint64_t n) {
    return arena_printf(c->arena, "%llu", (unsigned long long)n);
}

static const char *real_text(Cli *c, double v) {
    return arena_printf(c->arena, "%.15g", v);
}

/* Of an option that is negative where it is not given. */
static const char *given_text(Cli *c, double v) {
    return v >= 0 ? real_text(c, v) : NULL;
}

/* Of weights in files of their own, as far as a plan recognises them. */
static const char *weights_text(Cli *c, const Graph *g) {
    uint64_t h = 0;
    for (Value v = 1; v < g->nodes.n; v++) {
        const Op op = (Op)graph_node(g, v)->op;
        const Constant *k = op == OP_const || op == OP_state ? layer_elements(g, v) : NULL;
        if (!k || !k->file) continue;
        const uint64_t pair[] = {h, plan_probe_hash(k->data, k->bytes)};
        h = hash_bytes(pair, sizeof pair, 0);
    }
    return h ? arena_printf(c->arena, "%016llx", (unsigned long long)h) : "";
}

/* Whether a step's rate depends on how many there are in all. */
static bool rates_follow_steps(const RunOptions *o) {
    return o->schedule.kind != SCHEDULE_constant || (o->warmup > 0 && o->warmup < 1);
}

/* Where nothing that a step computes depends on how many there are, it may go on for longer than it
 * was to. */
void train_list_said(Cli *c, const Graph *model, RunOptions *o) {
    const TrainArgs *a = &c->train;
    const SafePair said[] = {
        {"--loss", c->loss},
        {"the weights' hash", weights_text(c, model)},
        {"--lora", a->lora},
        {"--train", a->learn},
        {"--freeze", a->freeze},
        {"--batch-norm", a->batch_norm},
        {"--dropout", a->dropout},
        {"--optimizer", a->optimizer},
        {"--token-type", a->token_type},
        {"--end-token", a->end_token == UINT64_MAX ? NULL : count_text(c, a->end_token)},
        {"--batch", count_text(c, a->batch)},
        {"--seq", count_text(c, a->seq)},
        {"--accumulate", count_text(c, a->accumulate)},
        {"--no-packing", a->no_packing ? "given" : "not given"},
        {"--no-shuffle", a->no_shuffle ? "given" : "not given"},
        {"--seed", count_text(c, c->seed)},
        {"--hold-out", given_text(c, a->hold_out)},
        {"--lr", real_text(c, o->schedule.lr)},
        {"--min-lr", real_text(c, o->schedule.min)},
        {"--schedule", schedule_name(o->schedule.kind)},
        {"--warmup", real_text(c, o->warmup)},
        {"--decay", real_text(c, o->decay)},
        {"--weight-decay", given_text(c, a->weight_decay)},
        {"--no-decay", a->no_decay},
        {"--on-nan", train_skips(a) ? "skip" : "stop"}, /* of which the plan's states are */
        {"--head-rows", count_text(c, a->head_rows)},
        {"--loss-scale", given_text(c, a->loss_scale)},
        {"--scale-every", count_text(c, a->scale_every)},
        {"--clip", real_text(c, a->clip)},
        {"--beta1", given_text(c, a->beta1)},
        {"--beta2", given_text(c, a->beta2)},
        {"--eps", given_text(c, a->eps)},
        {"--momentum", given_text(c, a->momentum)},
        {"--nesterov", a->nesterov ? "given" : "not given"},
        {"--precision", c->precision},
        {"--steps", a->steps ? count_text(c, a->steps) : NULL}, /* these at the end: see below */
        {"--epochs", given_text(c, a->epochs)}};
    enum { COUNT = sizeof said / sizeof *said, LENGTHS = 2 };
    SafePair *v = arena_copy(c->arena, said, sizeof said);
    for (uint32_t i = 0; i < COUNT; i++)
        if (!v[i].value) v[i].value = "";
    o->said = v;
    o->nsaid = rates_follow_steps(o) ? COUNT : COUNT - LENGTHS;
}
