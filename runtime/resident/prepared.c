/* A plan with nothing left to prepare: what the prepare steps of a session's target made, and the
 * constants that runs read beside it, in a file of weights that sessions map and use where it lies.
 * To plan_parse and to sessions they are constants like others. */
#include "runtime/base/file.h"
#include "runtime/session.h"
#include <stdlib.h>
#include <string.h>

#define PREPARED ".prepared" /* behind the plan's name */

typedef struct Made {
    const Plan *p;
    Resident *r;
    ErrorText e;
    char *path; /* of the weights */
    PlanStr file;
    uint64_t end; /* of the weights so far */
    PlanConstant *constants;
    const uint8_t **bytes; /* of each of them */
    uint32_t *number;      /* per constant of p: 1 + which it is, 0: not there so far */
    uint32_t nconstants;
    PlanTarget *targets;
    PlanBuffer *buffers;
    PlanState *states;
    PlanStep *steps;
    uint32_t nsteps;
    uint32_t *lists;
    uint64_t nlists;
    char *strings;
    uint64_t nstrings;
} Made;

static uint64_t aligned(uint64_t n) {
    return (n + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

/* Gives the constant's number. One of no bytes needs no file. */
static uint32_t place(Made *m, PlanStr name, const uint8_t *bytes, uint64_t n) {
    PlanConstant c = {.name = name, .length = n, .hash = plan_probe_hash(bytes, n)};
    if (n) {
        c.source = PLAN_external;
        c.file = m->file;
        c.offset = aligned(m->end);
        m->end = c.offset + n;
    }
    m->bytes[m->nconstants] = bytes;
    m->constants[m->nconstants] = c;
    return m->nconstants++;
}

/* A constant as it was. */
static graphc_status keep(Made *m, uint32_t *index) {
    const PlanConstant *c = &m->p->constants[*index];
    const uint8_t *bytes;
    if (!m->number[*index]) {
        GC_TRY(resident_constant(m->r, *index, &bytes, m->e));
        m->number[*index] = place(m, c->name, bytes, c->length) + 1;
    }
    *index = m->number[*index] - 1;
    return GRAPHC_OK;
}

/* Name of the prepare step that writes a buffer. */
static PlanStr writer_of(const Made *m, uint32_t buffer) {
    const Resident *r = m->r;
    for (uint32_t i = r->target->nprepare; i-- > 0;) {
        const PlanKernel *k = &r->kernels[r->steps[i].kernel];
        for (uint32_t j = 0; j < k->nbufs; j++)
            if (k->written >> j & 1 && m->p->lists[r->steps[i].bufs + j] == buffer) return k->name;
    }
    return 0;
}

/* Steps count from the first of a run on; what none of them uses is nothing in particular. */
static graphc_status make_buffer(Made *m, PlanBuffer *b, uint32_t i, bool here) {
    const uint32_t skipped = here ? m->r->target->nprepare : 0;
    const bool fixed = b->kind == PLAN_BUF_const || b->kind == PLAN_BUF_prepared;
    if (b->first > b->last || b->last < skipped) {
        if (fixed) b->kind = PLAN_BUF_temp;
        if (fixed) b->index = 0;
        b->first = 1;
        b->last = 0;
        return GRAPHC_OK;
    }
    b->first = b->first > skipped ? b->first - skipped : 0;
    b->last -= skipped;
    if (b->kind == PLAN_BUF_const) return keep(m, &b->index);
    if (b->kind == PLAN_BUF_prepared && here) {
        b->kind = PLAN_BUF_const;
        b->index = place(m, writer_of(m, i), m->r->address[i], (uint64_t)m->r->slots[b->bytes]);
    }
    return GRAPHC_OK;
}

static void make_steps(Made *m, PlanTarget *t, uint32_t skipped) {
    const uint64_t nentries = m->p->nentries;
    const uint32_t *ends = m->p->lists + t->ends;
    const PlanStep *from = m->p->steps + t->steps + skipped;
    t->ends = (PlanList)m->nlists;
    for (uint64_t i = 0; i < nentries; i++) m->lists[m->nlists++] = ends[i] - skipped;
    t->steps = m->nsteps;
    t->nsteps -= skipped;
    t->nprepare -= skipped;
    for (uint32_t i = 0; i < t->nsteps; i++) {
        PlanStep *s = &m->steps[m->nsteps++];
        *s = from[i];
        if (s->kind != PLAN_STEP_kernel) s->match -= skipped;
    }
}

static graphc_status make(Made *m) {
    for (uint64_t i = 0; i < m->p->nstates; i++) {
        PlanState *s = &m->states[i];
        if (!s->initial) continue;
        s->initial--;
        GC_TRY(keep(m, &s->initial));
        s->initial++;
    }
    for (uint64_t i = 0; i < m->p->ntargets; i++) {
        PlanTarget *t = &m->targets[i];
        const bool here = m->r->target == &m->p->targets[i];
        for (uint32_t k = 0; k < t->nbuffers; k++)
            GC_TRY(make_buffer(m, &m->buffers[t->buffers + k], k, here));
        make_steps(m, t, here ? t->nprepare : 0);
    }
    return GRAPHC_OK;
}

/* n records and room for `more` of them. */
static void *copy(const void *from, uint64_t n, uint64_t more, size_t record) {
    void *to = calloc(n + more + 1, record);
    if (to && n) memcpy(to, from, n * record);
    return to;
}

static bool make_room(Made *m, const char *path) {
    const Plan *p = m->p;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const uint64_t most = p->nconstants + m->r->target->nbuffers, n = strlen(name);
    m->file = (PlanStr)p->nstrings;
    m->nstrings = p->nstrings + n + sizeof PREPARED;
    m->nlists = p->nlists;
    m->constants = calloc(most + 1, sizeof *m->constants);
    m->bytes = calloc(most + 1, sizeof *m->bytes);
    m->number = calloc(p->nconstants + 1, sizeof *m->number);
    m->targets = copy(p->targets, p->ntargets, 0, sizeof *m->targets);
    m->buffers = copy(p->buffers, p->nbuffers, 0, sizeof *m->buffers);
    m->states = copy(p->states, p->nstates, 0, sizeof *m->states);
    m->steps = calloc(p->nsteps + 1, sizeof *m->steps);
    m->lists = copy(p->lists, p->nlists, p->ntargets * p->nentries, sizeof *m->lists);
    m->strings = copy(p->strings, p->nstrings, n + sizeof PREPARED, 1);
    m->path = calloc(strlen(path) + sizeof PREPARED, 1);
    if (!m->constants || !m->bytes || !m->number || !m->targets || !m->buffers || !m->states ||
        !m->steps || !m->lists || !m->strings || !m->path)
        return false;
    strcat(strcat(m->strings + m->file, name), PREPARED);
    strcat(strcat(m->path, path), PREPARED);
    return true;
}

static void release(Made *m) {
    void *all[] = {m->constants, m->bytes, m->number, m->targets, m->buffers,
                   m->states,    m->steps, m->lists,  m->strings, m->path};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static graphc_status put(const Made *m, FileWriter *w, char why[256]) {
    static const uint8_t zeros[PART_ALIGN];
    for (uint32_t i = 0; i < m->nconstants; i++) {
        const PlanConstant *c = &m->constants[i];
        if (!c->length) continue;
        GC_TRY(file_put(w, zeros, c->offset - w->size, why));
        GC_TRY(file_put(w, m->bytes[i], c->length, why));
    }
    return GRAPHC_OK;
}

static graphc_status write_weights(const Made *m) {
    char why[256];
    FileWriter w;
    if (!m->end) return GRAPHC_OK;
    graphc_status st = file_begin(m->path, &w, why);
    if (st == GRAPHC_OK) {
        st = put(m, &w, why);
        if (st == GRAPHC_OK)
            st = file_commit(&w, why);
        else
            file_abandon(&w);
    }
    return st == GRAPHC_OK ? st : error_set(m->e, st, "%s: %s", m->path, why);
}

static graphc_status write_plan(const Made *m, const char *path) {
    PlanPart part[PLAN_SEC_COUNT];
    void *bytes;
    uint64_t size;
    char why[256];
    for (uint32_t i = 0; i < m->nconstants; i++)
        if (m->constants[i].file) m->constants[i].file_size = m->end;
    plan_parts(m->p, part);
    part[PLAN_SEC_strings] = (PlanPart){m->strings, m->nstrings};
    part[PLAN_SEC_lists] = (PlanPart){m->lists, m->nlists * sizeof *m->lists};
    part[PLAN_SEC_states].p = m->states;
    part[PLAN_SEC_constants] = (PlanPart){m->constants, m->nconstants * sizeof *m->constants};
    part[PLAN_SEC_targets].p = m->targets;
    part[PLAN_SEC_buffers].p = m->buffers;
    part[PLAN_SEC_steps] = (PlanPart){m->steps, m->nsteps * sizeof *m->steps};
    part[PLAN_SEC_data] = (PlanPart){0};
    if (plan_join(m->p, 0, part, &bytes, &size) != GRAPHC_OK)
        return error_set(m->e, GRAPHC_NO_MEMORY, "not enough memory for a plan");
    graphc_status st = file_write(path, bytes, size, why);
    free(bytes);
    return st == GRAPHC_OK ? st : error_set(m->e, st, "%s: %s", path, why);
}

static graphc_status save(Made *m, const char *path) {
    if (!make_room(m, path))
        return error_set(m->e, GRAPHC_NO_MEMORY, "not enough memory for a plan");
    GC_TRY(make(m));
    GC_TRY(write_weights(m));
    return write_plan(m, path);
}

graphc_status graphc_prepared_save(graphc_session *s, const char *path) {
    s->error[0] = 0;
    if (!path) return error_set(session_error(s), GRAPHC_USAGE, "there is no path");
    if (s->res->ops->own_memory)
        return error_set(session_error(s), GRAPHC_UNSUPPORTED,
                         "what is prepared lies in a GPU's memory; only a CPU's can be saved");
    if (s->res->lean)
        return error_set(session_error(s), GRAPHC_USAGE,
                         "a lean session holds nothing that is prepared; save another one's");
    Made m = {.p = s->plan, .r = s->res, .e = session_error(s)};
    pthread_mutex_lock(&s->owner->lock);
    graphc_status st = save(&m, path);
    pthread_mutex_unlock(&s->owner->lock);
    release(&m);
    return st;
}
