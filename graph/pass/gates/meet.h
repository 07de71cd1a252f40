/* Where values meet that are made element by element of one thing: the two halves of a gated unit.
 */
#ifndef GRAPH_MEET_H
#define GRAPH_MEET_H

#include "graph/pass/rewrite.h"

typedef struct MeetFacts {
    bool *constant; /* depends on constants alone */
    Value *user;    /* the last reader of each value that has any */
} MeetFacts;

/* RewriteFacts of passes that ask for meet_point. */
void *meet_facts(const Graph *g, void *ctx);

/* The first map that reads something else, too, and is the only way from v to any result: what lies
 * between are maps of v alone (with constants), however often each is read. 0: there is none. */
Value meet_point(const Rewrite *r, const MeetFacts *m, Value v);

#endif
