/* Sizes in declared types: the symbols that names stand for, sums of them, and what options say. */
#include "frontend/import/import_impl.h"
#include <ctype.h>
#include <string.h>

#define MAX_DIM      INT32_MAX /* default upper bound of a symbol */
#define MAX_ELEMENTS ((int64_t)1 << 48)

typedef Onnx__TensorShapeProto__Dimension Dim;
typedef Onnx__TypeProto__Tensor TensorType;

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* "" for an unknown size: also exporters' "?" */
static const char *param_of(const Dim *d) {
    if (d->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM) return "";
    for (const char *c = text_or_empty(d->dim_param); *c; c++)
        if (is_word(*c)) return d->dim_param;
    return "";
}

/* A negative size is another spelling of an unknown one. */
static bool has_value(const Dim *d) {
    return d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
           d->dim_value >= 0;
}

static const TensorType *tensor_type(const Onnx__TypeProto *t) {
    return t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? t->tensor_type : NULL;
}

/* Symbols appear in text forms, so their names are words, and each has its own. */
static const char *free_name(Importer *im, const char *text) {
    char *name = arena_printf(im->arena, "%s%s", isdigit((unsigned char)text[0]) ? "d" : "", text);
    for (char *c = name; *c; c++)
        if (!is_word(*c)) *c = '_';
    return expr_free_name(im->exprs, name);
}

static bool is_operator(char c) {
    return c == '+' || c == '*' || c == '/' || c == '(' || c == ')';
}

static bool is_sum(const char *text) {
    while (*text && !is_operator(*text)) text++;
    return *text;
}

/* What the sizes of inputs and outputs say about a name. */
enum { NAME_ADDED = 1, NAME_OF_OUTPUT = 2 };

static void note_name(Importer *im, const char *name, size_t n, uint32_t flag) {
    const char *key = arena_strndup(im->arena, name, n);
    uint32_t flags = 0;
    (void)mapstr_get(im->size_names, key, &flags);
    if (n && (flags | flag) != flags) mapstr_put(im->size_names, key, flags | flag);
}

/* The operands of a sum, whole ("past seq" in "past seq + 1") and word by word. */
static void note_sum(Importer *im, const char *text) {
    for (const char *p = text; *p; p += *p != 0) {
        while (*p == ' ' || is_operator(*p)) p++;
        const char *start = p, *end = p;
        for (; *p && !is_operator(*p); p++)
            if (*p != ' ') end = p + 1;
        note_name(im, start, (size_t)(end - start), NAME_ADDED);
        for (const char *w = start; w < end; w++) {
            const char *from = w;
            while (w < end && is_word(*w)) w++;
            note_name(im, from, (size_t)(w - from), NAME_ADDED);
        }
    }
}

static void note_sizes(Importer *im, const Onnx__ValueInfoProto *v, bool output) {
    const TensorType *t = tensor_type(v->type);
    for (size_t k = 0; t && t->shape && k < t->shape->n_dim; k++) {
        const char *text = param_of(t->shape->dim[k]);
        if (strchr(text, '+')) note_sum(im, text);
        if (output) note_name(im, text, strlen(text), NAME_OF_OUTPUT);
    }
}

void dims_index(Importer *im) {
    const Onnx__GraphProto *g = im->proto->graph;
    im->size_names = mapstr_create(im->arena);
    for (size_t i = 0; i < g->n_input; i++) note_sizes(im, g->input[i], false);
    for (size_t i = 0; i < g->n_output; i++) note_sizes(im, g->output[i], true);
}

static bool may_be_empty(Importer *im, const char *param) {
    uint32_t flags = 0;
    return mapstr_get(im->size_names, param, &flags) && flags == NAME_ADDED;
}

/* The option for a symbol, found by its spelling in the model or as printed. */
static const ImportDim *option_for(Importer *im, const char *param, const char *name) {
    const ImportOptions *o = im->options;
    for (uint32_t i = 0; o && i < o->ndims; i++)
        if (!strcmp(o->dims[i].name, name) || (*param && !strcmp(o->dims[i].name, param))) {
            im->dim_used[i] = true;
            return &o->dims[i];
        }
    return NULL;
}

/* At least `lo`, or what the model asks for. */
static int64_t least_size(const Importer *im, const char *name, int64_t lo) {
    for (uint32_t i = 0; i < im->least->n; i++)
        if (!strcmp(im->least->v[i].name, name)) return im->least->v[i].lo;
    return lo;
}

static Expr new_symbol(Importer *im, const char *param, const char *name, uint32_t input,
                       uint32_t axis) {
    const ImportDim *o = option_for(im, param, name);
    if (o && o->lo == o->hi) return expr_const(im->exprs, o->lo);
    SymInfo info = {.name = name, .kind = SYM_DIM, .a = input, .b = axis};
    info.lo = o ? o->lo : *param && may_be_empty(im, param) ? 0 : 1;
    info.lo = least_size(im, name, info.lo);
    info.hi = o ? o->hi : MAX_DIM;
    return expr_sym_new(im->exprs, info);
}

bool dims_least(const Graph *g, uint32_t said, LeastSizes *out) {
    const uint32_t nsym = expr_sym_count(g->exprs);
    int64_t *least = ARENA_ARRAY(g->arena, int64_t, nsym + 1), lo, hi;
    uint32_t *by = ARENA_ARRAY(g->arena, uint32_t, nsym + 1), sym;
    out->v = arena_alloc(g->arena, (nsym + 1) * sizeof *out->v);
    for (uint32_t i = 0; i < g->nassume; i++) {
        if (!graph_assumed_bounds(g, i, &sym, &lo, &hi)) continue;
        if (lo <= expr_sym_info(g->exprs, sym)->lo || lo <= least[sym]) continue;
        least[sym] = lo;
        by[sym] = i;
    }
    for (sym = 0; sym < nsym; sym++) {
        if (!least[sym]) continue;
        if (!out->n) diag_rewind(g->diags, said);
        const char *name = expr_sym_info(g->exprs, sym)->name;
        out->v[out->n].name = name;
        out->v[out->n++].lo = least[sym];
        (void)diag(g->diags, D_ASSUME, graph_place(g, g->assume[by[sym]].loc, g->arena),
                   "%s >= %lld", name, (long long)least[sym]);
    }
    return out->n > 0;
}

static Expr param_expr(Importer *im, const char *text) {
    uint32_t e;
    const char *end = text;
    if (mapstr_get(im->dims, text, &e)) return e;
    if (!is_sum(text)) return 0;
    e = expr_parse(im->exprs, text, &end);
    return e && !*end ? e : 0;
}

/* sums: the second round, when all plain names are known. Sets *out to 0 if not decided yet. */
static Expr dim_expr(Importer *im, const Onnx__ValueInfoProto *v, uint32_t input, uint32_t axis,
                     const Dim *d, bool sums) {
    const char *param = param_of(d);
    if (has_value(d)) return expr_const(im->exprs, d->dim_value);
    if (!*param) {
        const char *name = arena_printf(im->arena, "%s_%u", text_or_empty(v->name), axis);
        return new_symbol(im, "", free_name(im, name), input, axis);
    }
    const bool sum = is_sum(param);
    if (sum && !sums) return 0;
    Expr e = param_expr(im, param);
    if (!e) {
        e = new_symbol(im, param, free_name(im, param), input, axis);
        mapstr_put(im->dims, param, e);
    }
    return e;
}

bool dims_input_type(Importer *im, const Onnx__ValueInfoProto *v, const char *place, Type *out) {
    const TensorType *t = tensor_type(v->type);
    *out = (Type){0};
    if (!t) return diag(im->diags, D_UNSUPPORTED_TYPE, place, "only tensors can be inputs"), false;
    if (!dtype_from_onnx(t->elem_type, &out->dtype))
        return diag(im->diags, D_UNSUPPORTED_TYPE, place, "element type %s (%d) is not supported",
                    dtype_onnx_name(t->elem_type), t->elem_type),
               false;
    if (!t->shape)
        return diag(im->diags, D_UNSUPPORTED, place, "the rank of an input must be declared"),
               false;
    if (t->shape->n_dim > GRAPH_MAX_RANK)
        return diag(im->diags, D_LIMIT, place, "rank %zu exceeds %d", t->shape->n_dim,
                    GRAPH_MAX_RANK),
               false;
    int64_t count = 1;
    for (size_t k = 0; k < t->shape->n_dim; k++) {
        const Dim *d = t->shape->dim[k];
        if (!has_value(d) || d->dim_value == 0) continue;
        if (__builtin_mul_overflow(count, d->dim_value, &count) || count > MAX_ELEMENTS)
            return diag(im->diags, D_LIMIT, place, "the shape has more than 2^48 elements"), false;
    }
    out->rank = (uint8_t)t->shape->n_dim;
    return true;
}

void dims_fill(Importer *im, const Onnx__ValueInfoProto *v, uint32_t input, bool sums, Type *type) {
    const TensorType *t = tensor_type(v->type);
    for (uint32_t k = 0; k < type->rank; k++)
        if (!type->dim[k]) type->dim[k] = dim_expr(im, v, input, k, t->shape->dim[k], sums);
}

void dims_claim(Scope *s, const char *name, Value v) {
    Importer *im = s->im;
    const ImportOptions *o = im->options;
    for (uint32_t k = 0; o && k < o->ndims && v && !s->parent && !s->frame; k++) {
        if (im->dim_used[k] || strcmp(o->dims[k].name, name)) continue;
        im->dim_used[k] = true;
        const ValueClaim claim = {v, o->dims[k].lo, o->dims[k].hi};
        vec_push(im->arena, &im->claims, claim);
    }
}

/* Of the model's inputs. */
static const char *symbol_names(Importer *im) {
    StrBuf list;
    sb_init(&list, im->arena);
    for (uint32_t i = 0; i < expr_sym_count(im->exprs); i++) {
        const SymInfo *s = expr_sym_info(im->exprs, i);
        if (s->kind == SYM_DIM) sb_printf(&list, "%s\"%s\"", list.n ? ", " : "", s->name);
    }
    return sb_str(&list);
}

void dims_check_options(Importer *im) {
    for (uint32_t i = 0; im->options && i < im->options->ndims; i++) {
        if (im->dim_used[i]) continue;
        diag(im->diags, D_USAGE, "",
             "the model has no symbolic dimension \"%s\", and no value of that name",
             im->options->dims[i].name);
        const char *known = symbol_names(im);
        diag_hint(im->diags,
                  *known ? "its symbolic dimensions are %s" : "it has no symbolic dimension%s",
                  known);
    }
}

bool dims_type(Importer *im, const Onnx__TypeProto *proto, Type *out) {
    const TensorType *t = tensor_type(proto);
    if (!t || !t->shape || t->shape->n_dim > GRAPH_MAX_RANK) return false;
    *out = (Type){.rank = (uint8_t)t->shape->n_dim};
    if (!dtype_from_onnx(t->elem_type, &out->dtype)) return false;
    for (uint32_t k = 0; k < out->rank; k++) {
        const Dim *d = t->shape->dim[k];
        if (has_value(d))
            out->dim[k] = expr_const(im->exprs, d->dim_value);
        else
            out->dim[k] = *param_of(d) ? param_expr(im, param_of(d)) : 0;
        if (!out->dim[k]) return false;
    }
    return true;
}
