/* A plan's constants: where their bytes are, and whether they are what the plan was made with. */
#include "runtime/base/check.h"
#include "runtime/resident/resident.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const PlanConstant *constant_of(const Resident *r, uint32_t buffer) {
    return &r->owner->plan.constants[r->buffers[buffer].index];
}

/* A path in the folder that the plan names for its external files, when that is not its own; the
 * plan says where it is from where it lies itself. */
static bool weights_hint(const graphc_plan *p, char out[PATH_MAX]) {
    const char *dir = plan_str(&p->plan, p->plan.header->weights);
    const char *slash = strrchr(p->base_path, '/');
    int folder = slash && dir[0] != '/' ? (int)(slash - p->base_path) + 1 : 0;
    int n = snprintf(out, PATH_MAX, "%.*s%s/.", folder, p->base_path, dir);
    return *dir && n > 0 && n < PATH_MAX;
}

/* Maps the file of an external constant, once per file name. */
static graphc_status map_file(Resident *r, uint64_t c, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanConstant *k = &p->constants[c];
    for (uint64_t i = 0; i < p->nconstants; i++)
        if (r->mapped[i] && p->constants[i].file == k->file) {
            r->files[c] = r->files[i];
            return GRAPHC_OK;
        }
    const char *name = plan_str(p, k->file), *base = r->weights ? r->weights : r->owner->base_path;
    char hinted[PATH_MAX];
    if (!r->weights && base && weights_hint(r->owner, hinted)) base = hinted;
    if (!base)
        return error_set(e, GRAPHC_USAGE,
                         "the plan's constants are in \"%s\", but no base path was given", name);
    char why[256];
    /* The user trusts the plan's code and named its folder; what is read is checked by its hash. */
    const FileLinks links = {.anywhere = true};
    int fd = -1;
    graphc_status st =
        file_open_beneath(base, name, links, &r->files[c], r->stage.on ? &fd : NULL, why);
    const char *slash = strrchr(base, '/');
    if (st != GRAPHC_OK)
        return error_set(e, st,
                         "the plan's weights, \"%s\" in the folder %.*s: %s; name their folder "
                         "(--weights, weights_dir) or embed them (--embed)",
                         name, slash ? (int)(slash - base) : 1, slash ? base : ".", why);
    r->mapped[c] = 1;
    stage_file(r, fd, r->files[c].data);
    return GRAPHC_OK;
}

/* Where it lies, if file and constant have their lengths. */
static graphc_status find(Resident *r, uint64_t c, const uint8_t **out, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanConstant *k = &p->constants[c];
    if (k->source == PLAN_embedded) {
        *out = p->data + k->offset;
        return GRAPHC_OK;
    }
    if (!r->files[c].data) GC_TRY(map_file(r, c, e));
    const char *file = plan_str(p, k->file), *name = plan_str(p, k->name);
    if (!check_span(k->offset, k->length, r->files[c].size))
        return error_set(e, GRAPHC_INVALID, "\"%s\" is too short for constant \"%s\": %llu bytes",
                         file, name, (unsigned long long)r->files[c].size);
    if (r->files[c].size != k->file_size)
        return error_set(e, GRAPHC_INVALID,
                         "\"%s\" has %llu bytes; when the plan was made it had %llu", file,
                         (unsigned long long)r->files[c].size, (unsigned long long)k->file_size);
    *out = r->files[c].data + k->offset;
    return GRAPHC_OK;
}

graphc_status resident_recognise(const Resident *r, uint64_t c, const uint8_t *bytes, ErrorText e) {
    const PlanConstant *k = &r->owner->plan.constants[c];
    if (k->source == PLAN_embedded) return GRAPHC_OK;
    return resident_known(r, c, plan_probe_hash(bytes, k->length), e);
}

graphc_status resident_known(const Resident *r, uint64_t c, uint64_t hash, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanConstant *k = &p->constants[c];
    if (hash == k->hash) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID,
                     "\"%s\" does not hold constant \"%s\" as it was when the plan was made",
                     plan_str(p, k->file), plan_str(p, k->name));
}

/* Recognised by length, probe hash and the size of its file. */
graphc_status resident_constant(Resident *r, uint64_t c, const uint8_t **out, ErrorText e) {
    GC_TRY(find(r, c, out, e));
    return resident_recognise(r, c, *out, e);
}

void resident_constant_used(const Resident *r, Lane *lane, uint64_t c, const uint8_t *bytes) {
    const PlanConstant *k = &r->owner->plan.constants[c];
    bool in_file = k->source == PLAN_external || r->owner->map.data;
    if (in_file && r->ops->constant_used) r->ops->constant_used(lane, bytes, k->length);
}

graphc_status resident_find(Resident *r, uint32_t i, const uint8_t **bytes, ErrorText e) {
    const uint64_t c = r->buffers[i].index;
    const int64_t want = r->slots[r->buffers[i].bytes];
    GC_TRY(find(r, c, bytes, e));
    if (want < 0 || (uint64_t)want != constant_of(r, i)->length)
        return error_set(e, GRAPHC_INVALID, "constant %llu has not the size of its buffer",
                         (unsigned long long)c);
    return GRAPHC_OK;
}

graphc_status resident_load(Resident *r, Lane *lane, uint32_t i, ErrorText e) {
    const uint8_t *bytes = NULL;
    const uint64_t c = r->buffers[i].index, want = constant_of(r, i)->length;
    GC_TRY(resident_find(r, i, &bytes, e));
    const bool staged = lane && stage_takes(r, i);
    if (staged) GC_TRY(stage_read(r, lane, i, &bytes, e));
    GC_TRY(resident_recognise(r, c, bytes, e));
    if (staged || want == 0) {
        r->address[i] = want ? (void *)(uintptr_t)bytes : r->nowhere;
        return GRAPHC_OK;
    }
    size_t align = dtype_bytes(plan_dtype(r->buffers[i].dtype));
    bool owned = false;
    GC_TRY(r->ops->constant(r, bytes, want, align, &r->address[i], &owned, e));
    r->owned[i] = owned;
    return GRAPHC_OK;
}
