#include "frontend/driver/cli/session.h"
#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/machine/memory.h"
#include "frontend/driver/cli/units.h"
#include "codegen/target.h"
#include "runtime/base/check.h"
#include "runtime/base/cores.h"
#include "runtime/base/file.h"
#include "runtime/base/map.h"
#include "runtime/base/vec.h"
#include "frontend/import/import.h"
#include "runtime/base/strbuf.h"
#include "runtime/cpu/isa.h"
#include "runtime/plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of symbols that nothing determines, and the largest value drawn for integer inputs: small
 * enough to be a valid row of any embedding or mask. */
#define DEFAULT_DIM 1
#define INT_HIGH    1

DType cli_dtype(const char *name) {
    DType t;
    return dtype_from_name(name, &t) ? t : DT_none;
}

char *cli_file_name(Arena *a, const char *name) {
    char *s = arena_strdup(a, name);
    for (char *p = s; *p; p++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *p))
            *p = '_';
    return s;
}

graphc_status cli_session_device(CliSession *s, graphc_session_options *o) {
    const char *d = s->cli->device ? s->cli->device : "cpu";
    char *end;
    s->device = d;
    if (strcmp(d, "cpu") == 0) return GRAPHC_OK;
    o->device = GRAPHC_CUDA;
    if (strcmp(d, "cuda") == 0) return GRAPHC_OK;
    if (strncmp(d, "cuda:", 5) == 0) {
        unsigned long id = d[5] >= '0' && d[5] <= '9' ? strtoul(d + 5, &end, 10) : ULONG_MAX;
        o->device_id = (int32_t)id;
        if (id <= INT32_MAX && !*end) return GRAPHC_OK;
    }
    return diag(s->cli->diags, D_USAGE, "--device", "\"%s\" is neither cpu nor cuda[:N]", d);
}

static uint32_t forms_here(const Cli *c) {
    return isa_forms(c->isa == 3   ? PLAN_x86_64_v3
                     : c->isa == 4 ? PLAN_x86_64_v4
                                   : PLAN_CPU_FORMS - 1);
}

Cli cli_for_device(const Cli *c, const graphc_session_options *o) {
    Cli r = *c;
    if (o->device == GRAPHC_CUDA && !c->target) r.target = target_for(PLAN_cuda)->name;
    r.forms = c->dump_ir ? 0 : forms_here(c);
    return r;
}

static graphc_status failed(Cli *c, const char *place, graphc_status status, const char *text) {
    DiagId id = status == GRAPHC_NO_MEMORY     ? D_NO_MEMORY
                : status == GRAPHC_IO          ? D_IO
                : status == GRAPHC_INVALID     ? D_PLAN
                : status == GRAPHC_USAGE       ? D_USAGE
                : status == GRAPHC_UNSUPPORTED ? D_PLAN_VERSION
                                               : D_RUN;
    size_t n = strlen(place); /* the runtime names files that it cannot open */
    return diag(c->diags, id, strncmp(text, place, n) == 0 ? "" : place, "%s", text);
}

graphc_status cli_load_failed(Cli *c, const char *path, graphc_status status, const char *text) {
    const char *dot = strrchr(path, '.');
    (void)failed(c, path, status, text);
    FileMap m = {0};
    char why[256];
    const char *kind = NULL;
    if (status == GRAPHC_INVALID && file_map(path, &m, why) == GRAPHC_OK)
        kind = file_kind(m.data, m.size);
    if (kind && (m.size < 8 || memcmp(m.data, PLAN_MAGIC, 8) != 0))
        diag_hint(c->diags, "it is %s", kind);
    else if (status == GRAPHC_INVALID && !(dot && strcmp(dot, ".plan") == 0))
        diag_hint(c->diags, "a model is compiled first if its name ends in .onnx");
    file_unmap(&m);
    return status;
}

static graphc_status make_session(CliSession *s, const char *path, graphc_session_options *o) {
    char error[512] = "";
    o->threads = (uint32_t)s->cli->threads;
    o->isa_limit = (uint32_t)s->cli->isa;
    o->weights_dir = s->cli->weights;
    o->lean = s->cli->lean;
    graphc_status st = graphc_session_create(s->plan, o, &s->session, error, sizeof error);
    if (st != GRAPHC_OK) return failed(s->cli, path, st, error);
    return cli_adapter_load(s);
}

graphc_status cli_session_make(CliSession *s, Cli *c, const char *path, const void *plan,
                               size_t size) {
    char error[512] = "";
    *s = (CliSession){.cli = c, .compiled = true, .inputs = s->inputs};
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    GC_TRY(cli_session_device(s, &o));
    graphc_status st = graphc_plan_load_memory(plan, size, path, &s->plan, error, sizeof error);
    if (st == GRAPHC_OK) s->plan_hash = ((const PlanHeader *)plan)->hash;
    return st == GRAPHC_OK ? make_session(s, path, &o) : cli_load_failed(c, path, st, error);
}

graphc_status cli_session_open(CliSession *s, Cli *c, const char *path) {
    char error[512] = "";
    *s = (CliSession){.cli = c};
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    GC_TRY(cli_session_device(s, &o));
    GC_TRY(cli_adapter_read(c));
    if (cli_is_model(path)) {
        const void *bytes;
        size_t size;
        Cli compile = cli_for_device(c, &o);
        GC_TRY(cli_load_plan(&compile, path, &bytes, &size));
        return cli_session_make(s, c, path, bytes, size);
    }
    GC_TRY(cli_check_plan_options(c));
    graphc_status st = graphc_plan_load(path, &s->plan, error, sizeof error);
    FileMap m;
    if (st == GRAPHC_OK && file_map(path, &m, error) == GRAPHC_OK) {
        s->plan_hash = ((const PlanHeader *)(const void *)m.data)->hash;
        file_unmap(&m);
    }
    return st == GRAPHC_OK ? make_session(s, path, &o) : cli_load_failed(c, path, st, error);
}

void cli_session_close(CliSession *s) {
    graphc_session_destroy(s->session);
    graphc_plan_destroy(s->plan);
}

graphc_status cli_session_failed(CliSession *s, graphc_status status) {
    if (status == GRAPHC_INVALID)
        return diag(s->cli->diags, D_RUN_INPUT, "", "%s", graphc_session_error(s->session));
    return failed(s->cli, "", status, graphc_session_error(s->session));
}

/* --- sizes of inputs that are not given ----------------------------------------------------- */

/* Sizes by what stands for them in the plan: a symbol or a formula of some. */
typedef struct Sizes {
    Arena *arena;
    MapStr *index;
    VEC(int64_t) v;
} Sizes;

static void set_size(Sizes *z, const char *text, int64_t v) {
    mapstr_put(z->index, text, z->v.n);
    vec_push(z->arena, &z->v, v);
}

/* The first that says so counts: --dim, the first input that is given, the least that a symbol can
 * be. */
static Sizes known_sizes(const CliSession *s) {
    Sizes z = {s->cli->arena, mapstr_create(s->cli->arena), {0}};
    for (uint32_t i = 0; i < graphc_plan_symbols(s->plan); i++) {
        graphc_symbol_info sym = graphc_plan_symbol(s->plan, i);
        set_size(&z, sym.name, sym.lo > DEFAULT_DIM ? sym.lo : DEFAULT_DIM);
    }
    for (uint32_t i = graphc_plan_inputs(s->plan); i-- > 0;) {
        graphc_io_info info = graphc_plan_input(s->plan, i);
        for (int32_t d = s->inputs[i].data ? info.rank : 0; d-- > 0;)
            set_size(&z, info.dims[d], s->inputs[i].dim[d]);
    }
    for (uint32_t i = s->cli->dims.n; i-- > 0;)
        set_size(&z, s->cli->dims.v[i].name, s->cli->dims.v[i].lo);
    return z;
}

static int64_t dim_size(const Sizes *z, const char *text) {
    char *end;
    uint32_t at;
    int64_t v = strtoll(text, &end, 10);
    if (end != text && !*end) return v;
    return mapstr_get(z->index, text, &at) ? z->v.v[at] : DEFAULT_DIM;
}

/* --dim of a plan: symbols that it has, and the range it was made for. */
static graphc_status check_dims(CliSession *s) {
    for (uint32_t k = 0; !s->compiled && k < s->cli->dims.n; k++) {
        const graphc_compile_dim *dim = &s->cli->dims.v[k];
        graphc_symbol_info sym = {0};
        TextList known = {0};
        for (uint32_t i = 0; i < graphc_plan_symbols(s->plan); i++) {
            graphc_symbol_info one = graphc_plan_symbol(s->plan, i);
            vec_push(s->cli->arena, &known, one.name);
            if (strcmp(one.name, dim->name) == 0) sym = one;
        }
        GC_TRY(cli_check_dim(s->cli, dim, sym.name, sym.lo, sym.hi, &known));
    }
    return GRAPHC_OK;
}

/* What is given is of the type and rank that the plan asks for: sizes of others follow from it. */
static graphc_status check_given(CliSession *s) {
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan); i++) {
        const graphc_io_info info = graphc_plan_input(s->plan, i);
        const EvalTensor *t = &s->inputs[i];
        if (!t->data) continue;
        if (t->dtype != cli_dtype(info.dtype_name))
            return diag(s->cli->diags, D_RUN_INPUT, "--input",
                        "input \"%s\" is %s, the file holds %s", info.name, info.dtype_name,
                        dtype_name(t->dtype));
        if (t->rank != info.rank)
            return diag(s->cli->diags, D_RUN_INPUT, "--input",
                        "input \"%s\" has %d axes, what the file holds has %d", info.name,
                        (int)info.rank, (int)t->rank);
    }
    return GRAPHC_OK;
}

/* A size that files determine is not for --dim to change. */
static graphc_status check_given_dims(CliSession *s) {
    for (uint32_t i = 0; !s->compiled && i < graphc_plan_inputs(s->plan); i++) {
        graphc_io_info info = graphc_plan_input(s->plan, i);
        const EvalTensor *t = &s->inputs[i];
        for (int32_t d = 0; t->data && d < info.rank; d++)
            for (uint32_t k = 0; k < s->cli->dims.n; k++)
                if (strcmp(s->cli->dims.v[k].name, info.dims[d]) == 0 &&
                    s->cli->dims.v[k].lo != t->dim[d])
                    return diag(s->cli->diags, D_USAGE, "--dim", "input \"%s\" has %s = %lld",
                                info.name, info.dims[d], (long long)t->dim[d]);
    }
    return GRAPHC_OK;
}

static graphc_status unknown_input(CliSession *s, const char *name) {
    StrBuf names;
    sb_init(&names, s->cli->arena);
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan) && i < 32; i++)
        sb_printf(&names, "%s\"%s\"", i ? ", " : "", graphc_plan_input(s->plan, i).name);
    (void)diag(s->cli->diags, D_RUN_INPUT, "--input", "the plan has no input \"%s\"", name);
    diag_hint(s->cli->diags, "its inputs are %s", sb_str(&names));
    return diag_info[D_RUN_INPUT].status;
}

static graphc_status read_given(CliSession *s) {
    Cli *c = s->cli;
    for (uint32_t i = 0; i < c->inputs.n; i++) {
        int32_t at = graphc_plan_find_input(s->plan, c->inputs.v[i].name);
        if (at < 0) return unknown_input(s, c->inputs.v[i].name);
        if (s->inputs[at].data)
            return diag(c->diags, D_USAGE, "--input", "\"%s\" is given twice", c->inputs.v[i].name);
        GC_TRY(tensor_file_read(c->arena, c->diags, c->inputs.v[i].file, c->inputs.v[i].name,
                                &s->inputs[at]));
        if (!s->inputs[at].data) s->inputs[at].data = arena_alloc(c->arena, 1);
    }
    return GRAPHC_OK;
}

static graphc_status enough_memory(CliSession *s, const char *what, uint64_t bytes) {
    Arena *a = s->cli->arena;
    uint64_t most = memory_available();
    if (bytes <= most) return GRAPHC_OK;
    return diag(s->cli->diags, D_NO_MEMORY, "", "out of memory: %s take %s, there are %s", what,
                unit_bytes(a, (double)bytes), unit_bytes(a, (double)most));
}

/* Type and shape of what is to be drawn, and its bytes. */
static graphc_status shape_input(CliSession *s, const Sizes *z, uint32_t i, uint64_t *out) {
    graphc_io_info info = graphc_plan_input(s->plan, i);
    EvalTensor *t = &s->inputs[i];
    t->dtype = cli_dtype(info.dtype_name);
    t->rank = (uint8_t)info.rank;
    uint64_t bytes = dtype_bytes(t->dtype);
    for (int32_t d = 0; d < info.rank; d++) {
        t->dim[d] = dim_size(z, info.dims[d]);
        if (!check_mul(bytes, (uint64_t)t->dim[d], &bytes))
            return diag(s->cli->diags, D_RUN_INPUT, "", "input \"%s\" is larger than any memory",
                        info.name);
    }
    *out = bytes;
    return GRAPHC_OK;
}

static void draw_input(CliSession *s, uint32_t i) {
    Cli *c = s->cli;
    EvalTensor *t = &s->inputs[i];
    t->data = arena_array(c->arena, tensor_numel(t) + 1, dtype_bytes(t->dtype));
    tensor_fill_random(t, c->seed, i, INT_HIGH, cores_threads((uint32_t)c->threads));
    s->drawn[i] = true;
}

static graphc_status shape_inputs(CliSession *s, const Sizes *z) {
    uint64_t sum = 0, bytes = 0;
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan); i++) {
        if (s->inputs[i].data) continue;
        GC_TRY(shape_input(s, z, i, &bytes));
        if (!check_add(sum, bytes, &sum)) sum = UINT64_MAX;
    }
    return enough_memory(s, "the inputs that are to be drawn", sum);
}

/* Inputs that no file gives. */
static graphc_status draw_inputs(CliSession *s, const Sizes *z) {
    enum { SHOWN = 16 };
    const unsigned long long seed = s->cli->seed;
    uint32_t count = 0;
    GC_TRY(shape_inputs(s, z));
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan); i++) {
        if (s->inputs[i].data) continue;
        draw_input(s, i);
        if (!s->cli->json && count++ < SHOWN)
            cli_print(stderr, "graphc: input \"%s\" is drawn from seed %llu\n",
                      graphc_plan_input(s->plan, i).name, seed);
    }
    if (count > SHOWN) cli_print(stderr, "graphc: and so are %u more inputs\n", count - SHOWN);
    return GRAPHC_OK;
}

static graphc_status bind(CliSession *s, uint32_t i) {
    graphc_io_info info = graphc_plan_input(s->plan, i);
    EvalTensor *t = &s->inputs[i];
    graphc_tensor b = {.data = t->data, .device = GRAPHC_CPU, .dtype = info.dtype, .rank = t->rank};
    memcpy(b.shape, t->dim, sizeof *t->dim * t->rank);
    graphc_status st = graphc_bind_input(s->session, i, &b);
    return st == GRAPHC_OK ? GRAPHC_OK : cli_session_failed(s, st);
}

/* A size as inputs have it; fed: in a file. */
typedef struct Seen {
    int64_t value;
    bool fed;
} Seen;

/* What the inputs' axes of each name have; at: name -> its place. */
static const Seen *seen_sizes(const CliSession *s, MapStr *at) {
    const uint32_t inputs = graphc_plan_inputs(s->plan);
    uint32_t n = 0, most = 0;
    for (uint32_t i = 0; i < inputs; i++) most += (uint32_t)s->inputs[i].rank;
    Seen *seen = ARENA_ARRAY(s->cli->arena, Seen, most + 1);
    for (uint32_t i = 0; i < inputs; i++) {
        const graphc_io_info info = graphc_plan_input(s->plan, i);
        for (int32_t d = 0; d < s->inputs[i].rank; d++) {
            uint32_t k;
            if (!mapstr_get(at, info.dims[d], &k)) {
                mapstr_put(at, info.dims[d], k = n++);
                seen[k] = (Seen){.value = s->inputs[i].dim[d]};
            }
            seen[k].fed |= !s->drawn[i];
        }
    }
    return seen;
}

/* What --dim says, else what inputs in files have, else what was assumed. */
uint32_t cli_session_sizes(const CliSession *s, CliSize **out) {
    const Cli *c = s->cli;
    uint32_t n = 0, k, symbols = graphc_plan_symbols(s->plan);
    MapStr *at = mapstr_create(c->arena), *said = mapstr_create(c->arena);
    const Seen *seen = seen_sizes(s, at);
    *out = ARENA_ARRAY(c->arena, CliSize, symbols + c->dims.n + 1);
    for (uint32_t i = 0; i < c->dims.n; i++) {
        const bool one = c->dims.v[i].lo == c->dims.v[i].hi;
        mapstr_put(said, c->dims.v[i].name, one);
        if (one) (*out)[n++] = (CliSize){c->dims.v[i].name, c->dims.v[i].lo, false};
    }
    for (uint32_t i = 0; i < symbols; i++) {
        uint32_t one = 0;
        const char *name = graphc_plan_symbol(s->plan, i).name;
        const bool bounded = mapstr_get(said, name, &one);
        if (one || !mapstr_get(at, name, &k)) continue;
        (*out)[n++] = (CliSize){name, seen[k].value, !bounded && !seen[k].fed};
    }
    return n;
}

json_t *cli_sizes_json(const CliSession *s) {
    CliSize *v;
    uint32_t n = cli_session_sizes(s, &v);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *j = json_object();
        json_add(j, "name", json_string(v[i].name));
        json_add(j, "value", json_integer((json_int_t)v[i].value));
        json_add(j, "assumed", json_boolean(v[i].assumed));
        json_array_append_new(list, j);
    }
    return list;
}

/* What was assumed, and what is empty: either may not be what was meant. */
static void note_sizes(const CliSession *s) {
    enum { SHOWN = 16 };
    CliSize *v;
    StrBuf assumed;
    uint32_t n = cli_session_sizes(s, &v), count = 0;
    sb_init(&assumed, s->cli->arena);
    for (uint32_t i = 0; i < n; i++)
        if (v[i].assumed && count++ < SHOWN)
            sb_printf(&assumed, "%s%s = %lld", assumed.n ? ", " : "", v[i].name,
                      (long long)v[i].value);
    if (count > SHOWN) sb_printf(&assumed, " and %u more", count - SHOWN);
    if (assumed.n)
        cli_print(stderr, "graphc: assumed: %s (--dim NAME=N says otherwise)\n", sb_str(&assumed));
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan); i++)
        if (tensor_numel(&s->inputs[i]) == 0)
            cli_print(stderr, "graphc: input \"%s\" is empty\n",
                      graphc_plan_input(s->plan, i).name);
}

/* Of a run on the CPU: what it needs beside inputs and weights. Shapes that do not go together are
 * for the run to tell. */
static graphc_status check_memory(CliSession *s) {
    size_t workspace;
    graphc_tensor t;
    if (strcmp(s->device, "cpu") != 0 || graphc_workspace_size(s->session, &workspace))
        return GRAPHC_OK;
    uint64_t sum = workspace;
    for (uint32_t i = 0; i < graphc_plan_outputs(s->plan); i++) {
        if (graphc_output_shape(s->session, 0, i, &t)) continue;
        uint64_t bytes = dtype_bytes(cli_dtype(graphc_plan_output(s->plan, i).dtype_name));
        for (int32_t d = 0; d < t.rank; d++)
            if (!check_mul(bytes, t.shape[d] < 0 ? 0 : (uint64_t)t.shape[d], &bytes))
                bytes = UINT64_MAX / 2;
        if (!check_add(sum, bytes, &sum)) sum = UINT64_MAX;
    }
    return enough_memory(s, "a run's outputs and values between kernels", sum);
}

/* An id beyond a table reads the nearest row, and ONNX has it an error: given ones are looked at.
 */
static graphc_status check_positions(CliSession *s) {
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan); i++) {
        const EvalTensor *t = &s->inputs[i];
        const char *name = graphc_plan_input(s->plan, i).name;
        const char *range =
            graphc_plan_note(s->plan, arena_printf(s->cli->arena, "range of %s", name));
        long long lo, hi;
        if (!range || sscanf(range, "%lld..%lld", &lo, &hi) != 2 || s->drawn[i]) continue;
        for (uint64_t k = 0, n = tensor_numel(t); dtype_is_int(t->dtype) && k < n; k++) {
            const int64_t x = dtype_load_i64(t->dtype, t->data, k);
            if (x < lo || x > hi)
                return diag(s->cli->diags, D_RUN_INPUT, "",
                            "input \"%s\": element %llu is %lld; the model takes %lld to %lld, "
                            "positions in a table",
                            name, (unsigned long long)k, (long long)x, lo, hi);
        }
    }
    return GRAPHC_OK;
}

graphc_status cli_session_bind(CliSession *s) {
    uint32_t n = graphc_plan_inputs(s->plan);
    bool first = !s->drawn;
    if (!s->inputs) s->inputs = ARENA_ARRAY(s->cli->arena, EvalTensor, n);
    if (first) s->drawn = ARENA_ARRAY(s->cli->arena, bool, n + 1);
    GC_TRY(check_dims(s));
    GC_TRY(read_given(s));
    GC_TRY(check_given(s));
    GC_TRY(check_given_dims(s));
    Sizes known = known_sizes(s);
    const graphc_io_info rows = graphc_plan_input(s->plan, 0);
    GC_TRY(cli_adapter_bind(s, rows.rank ? dim_size(&known, rows.dims[0]) : 1));
    GC_TRY(draw_inputs(s, &known));
    GC_TRY(check_positions(s));
    if (first && !s->cli->json) note_sizes(s);
    for (uint32_t i = 0; i < n; i++) GC_TRY(bind(s, i));
    return check_memory(s);
}

graphc_status cli_session_output(CliSession *s, uint32_t i, EvalTensor *out) {
    graphc_tensor t;
    graphc_status st = graphc_output_host(s->session, i, &t);
    if (st != GRAPHC_OK) return cli_session_failed(s, st);
    *out = (EvalTensor){.dtype = cli_dtype(graphc_plan_output(s->plan, i).dtype_name),
                        .rank = (uint8_t)t.rank,
                        .data = t.data};
    memcpy(out->dim, t.shape, sizeof *t.shape * (size_t)t.rank);
    return GRAPHC_OK;
}
