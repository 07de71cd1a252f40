/* The stage: memory that a large constant is read into which only prepare steps need, one at a
 * time.
 *
 * A file's pages that are mapped, read once and given back cost 10 ms for 100 MB, a read into
 * memory that stays in the last cache 6; and what packs panels walks rows that lie pages apart,
 * which are huge here. */
#include "runtime/resident/resident.h"
#include <unistd.h>

#define LEAST (64u << 10) /* smaller ones are read where they are mapped */
#define MOST  (16u << 20) /* larger ones, too: they would not stay in the last cache */

static uint64_t length_of(const Resident *r, uint32_t buffer) {
    return r->owner->plan.constants[r->buffers[buffer].index].length;
}

static bool is_passing(const Resident *r, uint32_t i) {
    return resident_is(r, i, PLAN_BUF_const) && r->buffers[i].last < r->target->nprepare &&
           length_of(r, i) >= LEAST && length_of(r, i) <= MOST;
}

static bool is_in_file(const Resident *r, uint32_t i) {
    const PlanConstant *c = &r->owner->plan.constants[r->buffers[i].index];
    const FileMap *f = &r->files[r->buffers[i].index];
    return c->source == PLAN_external && f->data == r->stage.file;
}

bool stage_has_file(const Resident *r, uint32_t i) {
    return r->stage.on && r->stage.fd >= 0 && is_in_file(r, i);
}

bool stage_takes(const Resident *r, uint32_t i) {
    const Stage *s = &r->stage;
    return s->on && !s->held && s->fd >= 0 && is_passing(r, i) && is_in_file(r, i);
}

static graphc_status stage_memory(Resident *r, ErrorText e) {
    uint64_t bytes = 0;
    if (r->stage.p) return GRAPHC_OK;
    for (uint32_t i = 0; i < r->target->nbuffers; i++)
        if (is_passing(r, i) && length_of(r, i) > bytes) bytes = length_of(r, i);
    GC_TRY(r->ops->alloc(r, bytes, &r->stage.p, e));
    r->stage.bytes = bytes;
    return GRAPHC_OK;
}

graphc_status stage_fill(const Resident *r, Lane *lane, uint32_t i, uint64_t at, uint64_t bytes,
                         void *to, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanConstant *c = &p->constants[r->buffers[i].index];
    if (r->ops->read(lane, r->stage.fd, c->offset + at, to, bytes)) return GRAPHC_OK;
    return error_set(e, GRAPHC_IO, "\"%s\": constant \"%s\" cannot be read", plan_str(p, c->file),
                     plan_str(p, c->name));
}

graphc_status stage_read(Resident *r, Lane *lane, uint32_t i, const uint8_t **bytes, ErrorText e) {
    GC_TRY(stage_memory(r, e));
    GC_TRY(stage_fill(r, lane, i, 0, length_of(r, i), r->stage.p, e));
    r->stage.held = true;
    r->stage.buffer = i;
    *bytes = r->stage.p;
    return GRAPHC_OK;
}

void stage_leave(Resident *r) {
    if (r->stage.held) r->address[r->stage.buffer] = NULL;
    r->stage.held = false;
}

void stage_open(Resident *r) {
    r->stage.on = r->ops->read;
}

void stage_file(Resident *r, int fd, const void *mapped) {
    if (r->stage.fd >= 0) close(r->stage.fd);
    r->stage.fd = fd;
    r->stage.file = mapped;
}

void stage_close(Resident *r) {
    if (r->stage.p) r->ops->free(r, r->stage.p, r->stage.bytes);
    stage_file(r, -1, NULL);
    r->stage.p = NULL;
    r->stage.on = r->stage.held = false;
}
