/* What bench prints: text, JSON, lines with commas. */
#include "codegen/codegen.h"
#include "frontend/driver/cli/bench/bench.h"
#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/units.h"
#include "frontend/driver/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    double q;
} percentiles[] = {{"p5", .05},  {"p25", .25}, {"p75", .75},   {"p90", .90},
                   {"p95", .95}, {"p99", .99}, {"p99.9", .999}};
#define PERCENTILES (sizeof percentiles / sizeof *percentiles)

static double at(const BenchRun *r, double q) {
    return bench_quantile(r->times.v, r->times.n, q);
}

static double mean(const BenchRun *r) {
    double sum = 0;
    for (uint32_t i = 0; i < r->times.n; i++) sum += r->times.v[i];
    return sum / r->times.n;
}

static double all_kernels(const BenchRun *r) {
    double sum = 0;
    for (uint32_t i = 0; i < r->n; i++) sum += r->kernels[i].seconds;
    return sum > 0 ? sum : 1e-9;
}

static const char *note(const BenchRun *r, const char *key) {
    const char *text = graphc_plan_note(r->session->plan, key);
    return text ? text : "unknown";
}

/* "batch = 1 (assumed), seq = 64" */
static const char *sizes_text(const BenchRun *r) {
    CliSize *v;
    uint32_t n = cli_session_sizes(r->session, &v);
    StrBuf s;
    sb_init(&s, r->session->cli->arena);
    for (uint32_t i = 0; i < n; i++)
        sb_printf(&s, "%s%s = %lld%s", i ? ", " : "", v[i].name, (long long)v[i].value,
                  v[i].assumed ? " (assumed)" : "");
    return n ? sb_str(&s) : "all fixed";
}

/* ---- Text ---- */

const char *bench_facts(const BenchRun *r) {
    Arena *a = r->session->cli->arena;
    BenchMachine m = bench_machine(a);
    StrBuf s;
    sb_init(&s, a);
    sb_printf(&s, "plan     %s, %016llx, made by %s from model %s\n", r->plan,
              (unsigned long long)r->session->plan_hash, note(r, ORIGIN_MADE_BY),
              note(r, ORIGIN_MODEL));
    sb_printf(&s, "sizes    %s\n", sizes_text(r));
    sb_printf(&s, "machine  %s, %u cores, %s\n", m.processor, m.cores, m.system);
    sb_printf(&s, "run by   %s, LLVM %s, on %s %s, %u threads\n", origin_release(a),
              codegen_llvm_version(), r->device, r->code, r->threads);
    return sb_str(&s);
}

static int longest_first(const void *a, const void *b) {
    const BenchKernel *x = *(const BenchKernel *const *)a, *y = *(const BenchKernel *const *)b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
    return (x > y) - (x < y);
}

/* The nodes that it covers, one after the other. */
static void print_nodes(const char *nodes) {
    for (const char *p = nodes; *p;) {
        size_t n = strcspn(p, "\n");
        cli_print(stdout, "%s%.*s", p == nodes ? "    " : ", ", (int)n, p);
        p += n + (p[n] == '\n');
    }
    if (*nodes) cli_print(stdout, "\n");
}

static void print_kernels(const Cli *c, const BenchRun *r) {
    const BenchKernel **by_time = ARENA_ARRAY(c->arena, const BenchKernel *, r->n + 1);
    for (uint32_t i = 0; i < r->n; i++) by_time[i] = &r->kernels[i];
    qsort(by_time, r->n, sizeof *by_time, longest_first);
    cli_print(stdout, "%10s %6s %12s %14s %10s  %s\n", "time", "%", "bytes", "operations",
              "estimate", "kernel, longest first, and its nodes");
    for (uint32_t i = 0; i < r->n; i++) {
        graphc_step_profile p = by_time[i]->step;
        double x = by_time[i]->seconds > 0 ? by_time[i]->seconds : 1e-9;
        cli_print(stdout, "%10s %6.1f %12s %14s %10s  %s\n", unit_seconds(c->arena, x),
                  100 * x / all_kernels(r), unit_count(c->arena, p.bytes / x, "B/s"),
                  unit_count(c->arena, p.flops / x, "FLOP/s"),
                  unit_seconds(c->arena, by_time[i]->least), p.kernel);
        print_nodes(p.nodes);
    }
}

static void print_text(const Cli *c, const BenchRun *r) {
    Arena *a = c->arena;
    cli_print(stdout, "%s", bench_facts(r));
    cli_print(stdout, "median %s  min %s  p99 %s  (%u runs)\n", unit_seconds(a, r->median),
              unit_seconds(a, r->times.v[0]), unit_seconds(a, at(r, 0.99)),
              r->times.n * r->times.in_row);
    if (c->percentiles) {
        for (size_t i = 0; i < PERCENTILES; i++)
            cli_print(stdout, "%s %s  ", percentiles[i].name,
                      unit_seconds(a, at(r, percentiles[i].q)));
        cli_print(stdout, "max %s  mean %s\n", unit_seconds(a, r->times.v[r->times.n - 1]),
                  unit_seconds(a, mean(r)));
    }
    if (r->times.apart)
        cli_print(stdout, "copies %s: %s to the device, %s back; not counted above\n",
                  unit_seconds(a, r->times.copies), unit_bytes(a, r->times.to_device),
                  unit_bytes(a, r->times.to_host));
    if (c->verbose) print_kernels(c, r);
}

/* ---- JSON ---- */

json_t *bench_facts_json(const Cli *c, const BenchRun *r) {
    BenchMachine m = bench_machine(c->arena);
    json_t *j = json_object();
    json_add(j, "plan", json_string(r->plan));
    json_add(
        j, "plan_hash",
        json_string(arena_printf(c->arena, "%016llx", (unsigned long long)r->session->plan_hash)));
    json_add(j, "made_by", json_string(note(r, ORIGIN_MADE_BY)));
    json_add(j, "model_hash", json_string(note(r, ORIGIN_MODEL)));
    json_add(j, "sizes", cli_sizes_json(r->session));
    json_t *machine = json_add(j, "machine", json_object());
    json_add(machine, "processor", json_string(m.processor));
    json_add(machine, "cores", json_integer(m.cores));
    json_add(machine, "system", json_string(m.system));
    json_add(j, "run_by", json_string(origin_release(c->arena)));
    json_add(j, "llvm", json_string(codegen_llvm_version()));
    json_add(j, "threads", json_integer(r->threads));
    json_add(j, "device", json_string(r->device));
    json_add(j, "code", json_string(r->code));
    json_add(j, "median_ms", json_real(r->median * 1e3));
    json_add(j, "min_ms", json_real(r->times.v[0] * 1e3));
    json_add(j, "p99_ms", json_real(at(r, 0.99) * 1e3));
    json_add(j, "runs", json_integer((json_int_t)r->times.n * r->times.in_row));
    return j;
}

static json_t *kernel_json(const BenchKernel *b) {
    graphc_step_profile p = b->step;
    json_t *k = json_object();
    json_add(k, "name", json_string(p.kernel));
    json_add(k, "kind", json_string(p.kind));
    json_add(k, "ms", json_real(b->seconds * 1e3));
    json_add(k, "least_ms", json_real(b->least * 1e3));
    json_add(k, "bytes", json_real(p.bytes));
    json_add(k, "flops", json_real(p.flops));
    json_add(k, "threads", json_integer(p.threads));
    json_add(k, "nodes", json_lines(p.nodes));
    return k;
}

static void print_json(const Cli *c, const BenchRun *r) {
    json_t *j = json_begin(c->verb->name), *facts = bench_facts_json(c, r);
    json_object_update(j, facts);
    json_decref(facts);
    if (c->percentiles) {
        json_t *p = json_add(j, "percentiles_ms", json_object());
        for (size_t i = 0; i < PERCENTILES; i++)
            json_add(p, percentiles[i].name, json_real(at(r, percentiles[i].q) * 1e3));
        json_add(p, "max", json_real(r->times.v[r->times.n - 1] * 1e3));
        json_add(p, "mean", json_real(mean(r) * 1e3));
    }
    if (r->times.apart) {
        json_add(j, "copies_ms", json_real(r->times.copies * 1e3));
        json_add(j, "to_device_bytes", json_real(r->times.to_device));
        json_add(j, "to_host_bytes", json_real(r->times.to_host));
    }
    json_t *list = c->verbose ? json_add(j, "kernels", json_array()) : NULL;
    for (uint32_t i = 0; list && i < r->n; i++)
        json_array_append_new(list, kernel_json(&r->kernels[i]));
    json_finish(j, stdout);
}

/* ---- Lines with commas ---- */

/* A field; quoted where it has to be. */
static void put_field(const char *text, const char *end) {
    bool plain = !text[strcspn(text, ",\"\n")];
    if (!plain) cli_print(stdout, "\"");
    for (; *text; text++)
        cli_print(stdout, *text == '"' && !plain ? "\"\"" : "%c", *text == '\n' ? ';' : *text);
    cli_print(stdout, "%s%s", plain ? "" : "\"", end);
}

static void print_csv(const Cli *c, const BenchRun *r) {
    if (c->verbose) {
        cli_print(stdout, "kernel,kind,ms,least_ms,bytes,flops,threads,nodes\n");
        for (uint32_t i = 0; i < r->n; i++) {
            graphc_step_profile p = r->kernels[i].step;
            cli_print(stdout, "%s,%s,%.6g,%.6g,%.6g,%.6g,%u,", p.kernel, p.kind,
                      r->kernels[i].seconds * 1e3, r->kernels[i].least * 1e3, p.bytes, p.flops,
                      p.threads);
            put_field(p.nodes, "\n");
        }
        return;
    }
    cli_print(stdout,
              "plan,plan_hash,sizes,device,code,threads,runs,median_ms,min_ms,max_ms,mean_ms");
    for (size_t i = 0; i < PERCENTILES; i++) cli_print(stdout, ",%s_ms", percentiles[i].name);
    cli_print(stdout, "\n");
    put_field(r->plan, ",");
    cli_print(stdout, "%016llx,", (unsigned long long)r->session->plan_hash);
    put_field(sizes_text(r), ",");
    cli_print(stdout, "%s,%s,%u,%u,%.6g,%.6g,%.6g,%.6g", r->device, r->code, r->threads,
              r->times.n * r->times.in_row, r->median * 1e3, r->times.v[0] * 1e3,
              r->times.v[r->times.n - 1] * 1e3, mean(r) * 1e3);
    for (size_t i = 0; i < PERCENTILES; i++)
        cli_print(stdout, ",%.6g", at(r, percentiles[i].q) * 1e3);
    cli_print(stdout, "\n");
}

void bench_print(const Cli *c, const BenchRun *r) {
    (c->json ? print_json : c->csv ? print_csv : print_text)(c, r);
}
