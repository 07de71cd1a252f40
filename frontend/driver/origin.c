#include "frontend/driver/origin.h"
#include "graph/grad/positions.h"
#include "runtime/graphc.h"

#include <string.h>

#ifndef GRAPHC_COMMIT
#define GRAPHC_COMMIT ""
#endif

const char *origin_release(Arena *a) {
    return arena_printf(a, "graphc %d.%d%s%s", GRAPHC_VERSION_MAJOR, GRAPHC_VERSION_MINOR,
                        *GRAPHC_COMMIT ? " " : "", GRAPHC_COMMIT);
}

/* Which integers inputs take that are positions along an axis. */
static void note_ranges(const Pipeline *p, PlanNoteText *notes, uint32_t *n) {
    const Positions *of = positions_of_inputs(p->imported);
    for (uint32_t i = 0; i < p->imported->inputs.n; i++)
        if (of[i].lo <= of[i].hi)
            notes[(*n)++] = (PlanNoteText){
                arena_printf(p->arena, "range of %s", p->imported->inputs.v[i].name),
                arena_printf(p->arena, "%lld..%lld", (long long)of[i].lo, (long long)of[i].hi)};
}

void origin_notes(const Pipeline *p, uint32_t accuracy_level, PlanBuildOptions *o) {
    PlanNoteText *notes =
        ARENA_ARRAY(p->arena, PlanNoteText, o->nnotes + 3 + p->imported->inputs.n);
    if (o->nnotes) memcpy(notes, o->notes, o->nnotes * sizeof *notes);
    notes[o->nnotes++] = (PlanNoteText){ORIGIN_MADE_BY, origin_release(p->arena)};
    notes[o->nnotes++] = (PlanNoteText){
        ORIGIN_MODEL, arena_printf(p->arena, "%016llx", (unsigned long long)import_hash(p->model))};
    if (accuracy_level)
        notes[o->nnotes++] =
            (PlanNoteText){ORIGIN_LEVEL, arena_printf(p->arena, "%u", accuracy_level)};
    note_ranges(p, notes, &o->nnotes);
    o->notes = notes;
}
