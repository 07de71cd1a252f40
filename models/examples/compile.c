/* Compiles a model that lies in memory, in this process, and says which kernels it became: external
 * data comes from a callback, progress is shown, messages are data, and the plan never touches a
 * disk.
 *
 *   compile MODEL.onnx
 */
#include <graphc.h>
#include <graphc_compile.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Bytes {
    void *data;
    size_t size;
} Bytes;

/* Where external data is looked for, and what was found. */
typedef struct Store {
    char folder[4096];
    Bytes files[64];
    int count;
} Store;

static Bytes read_file(const char *path) {
    Bytes b = {0};
    FILE *f = fopen(path, "rb");
    if (!f) return b;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    b.data = malloc((size_t)size + 1);
    b.size = b.data ? fread(b.data, 1, (size_t)size, f) : 0;
    fclose(f);
    return b;
}

/* graphc asks for each location once; the bytes stay until the plan is made. `location` comes from
 * the model: graphc has checked that it is relative and without "..". */
static graphc_status external(void *ctx, const char *location, const void **data, size_t *size) {
    Store *s = ctx;
    char path[8192];
    if (s->count == 64) return GRAPHC_NO_MEMORY;
    snprintf(path, sizeof path, "%s%s", s->folder, location);
    Bytes b = read_file(path);
    if (!b.data) return GRAPHC_IO;
    s->files[s->count++] = b;
    *data = b.data;
    *size = b.size;
    return GRAPHC_OK;
}

static bool progress(void *ctx, const char *stage, uint32_t done, uint32_t of) {
    (void)ctx;
    fprintf(stderr, "[%u/%u] %s\n", done, of, stage);
    return true; /* false would stop it */
}

static void print_messages(const graphc_compiled *c) {
    static const char *const name[] = {"note", "warning", "error"};
    for (uint32_t i = 0; i < graphc_compiled_messages(c); i++) {
        graphc_diagnostic d = graphc_compiled_diagnostic(c, i);
        fprintf(stderr, "%s G%04u %s: %s %s\n", name[d.severity], d.number, d.place, d.text,
                d.hint);
    }
}

/* What became of the model: each kernel and the nodes that it holds. */
static void print_kernels(const graphc_plan *p) {
    for (uint32_t i = 0; i < graphc_plan_kernels(p, 0); i++) {
        graphc_kernel_info k = graphc_plan_kernel(p, 0, i);
        int nodes = 0;
        for (const char *c = k.nodes; *c; c += strcspn(c, "\n"), c += *c == '\n') nodes++;
        printf("%s%s: %d nodes\n", k.name, *k.entry ? "" : " (at load)", nodes);
    }
}

int main(int argc, char **argv) {
    static Store store;
    char why[512];
    if (argc != 2) return fputs("compile MODEL.onnx\n", stderr), 2;
    Bytes model = read_file(argv[1]);
    if (!model.data) return fprintf(stderr, "%s cannot be read\n", argv[1]), 1;
    const char *slash = strrchr(argv[1], '/');
    snprintf(store.folder, sizeof store.folder, "%.*s", slash ? (int)(slash - argv[1]) + 1 : 0,
             argv[1]);

    graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
    o.embed = true; /* the plan is to need no files */
    o.external = external;
    o.external_ctx = &store;
    o.progress = progress;
    graphc_compiled *c = NULL;
    graphc_status st = graphc_compile_memory(model.data, model.size, &o, &c);
    if (c) print_messages(c);
    if (st != GRAPHC_OK) return fprintf(stderr, "%s\n", graphc_status_name(st)), 1;

    size_t size;
    const void *bytes = graphc_compiled_plan(c, &size);
    graphc_plan *plan;
    st = graphc_plan_load_memory(bytes, size, NULL, &plan, why, sizeof why);
    graphc_compiled_destroy(c); /* the plan has its own copy */
    for (int i = 0; i < store.count; i++) free(store.files[i].data);
    free(model.data);
    if (st != GRAPHC_OK) return fprintf(stderr, "%s\n", why), 1;
    print_kernels(plan);
    graphc_plan_destroy(plan);
    return 0;
}
