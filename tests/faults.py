"""Faults planted one at a time: each makes the tests fail that are there for it.

    faults.py                    plants and tests all, in this checkout and its build/ (an hour); restores what it changed
    faults.py NAME ...           those whose name contains one of these
    faults.py --check            that each still is where this list says; --list

A fault is a text that stands once in a file and what it becomes, and the tests that see it. It has to
compile. The list is the answer to "what is this test for": a fault that nothing sees is a hole in the tests.
Kernels' own faults are in unit/test_check.c, faults of compilers' passes in gir/, wrong models in cli/nodes.py.
"""
import os, re, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# name, tests, file, text, what it becomes
FAULTS = [
    # ---- tests that look away ------------------------------------------------------------------
    ("models' comparison takes NaN", "lint/checks", "tests/models/compare.py", "if not np.isfinite(got).all():", "if False:"),
    ("a suite without cases passes", "lint/checks", "tests/conformance/suite.py",
     "return 1 if failures or not results else 0", "return 1 if failures else 0"),
    ("a case without its data passes", "lint/checks", "tests/conformance/suite.py", "if chosen(n) and n not in results]", "if False]"),
    ("a better case is not entered", "lint/checks", "tests/conformance/suite.py", "if RANK[status] < RANK[old]:", "if False:"),
    ("a worse case passes as listed", "lint/checks", "tests/conformance/suite.py",
     "wrong_elements(reason) > wrong_elements(why)", "wrong_elements(reason) < 0"),
    ("integers are compared as floating point", "lint/checks", "tests/conformance/suite.py", 'if want.dtype.kind in "biu"', 'if want.dtype.kind in "b"'),
    ("results without a reference are not counted", "lint/checks", "tests/oracle/run.py", "if len(got) != count:", "if False:"),
    ("a benchmark whose model fails passes", "lint/checks", "tests/bench/cpu.py", "return 1 if failed else 0", "return 0"),
    ("peers come in one order", "lint/checks", "tests/bench/cpu.py", "return order[i % len(order):] + order[:i % len(order)]", "return order"),
    ("a benchmark does not say where", "lint/checks", "tests/bench/cpu.py", "lines = [machine(a), ", 'lines = ["", '),
    ("a lint that reads nothing passes", "lint/checks", "tests/lint/size", 'echo "no sources to look at"; exit 1;', "exit 0;"),
    ("mixtures of experts are in both means", "lint/checks", "tests/bench/cpu.py", "if not n.startswith(EXPERTS)]", "if n]"),
    ("a message that nothing raises", "lint/dead", "runtime/base/diag.def", "DIAG(IO, 101,", 'DIAG(IO_AGAIN, 199, error, IO, "never")\nDIAG(IO, 101,'),
    ("a crash of a forked command line is an exit", "lint/checks", "tests/forks.c", ": -WTERMSIG(status)", ": WTERMSIG(status)"),
    ("tests/run TYPO passes", "lint/checks", "tests/run", ">&2; exit 2 ;;", ">&2; exit 0 ;;"),
    ("a file at the top is overlooked", "lint/checks", "tests/lint/tree", '[ -z "$stray" ] || {', "true || {"),
    ("a peer is timed before it is warm", "lint/checks", "tests/bench/cpu.py", "while spent < WARMUP_S:", "while spent < 0:"),
    ("graphc warms up for longer than its peers", "lint/checks", "frontend/driver/cli/bench/times.c", "#define WARMUP_SECONDS 0.2", "#define WARMUP_SECONDS 0.5"),
    ("a peer that counts goes on from timing to timing", "lint/checks", "tests/bench/gpu.py", "if self.before:", "if False:"),
    ("what a sanitizer reports is late", "lint/checks", "tests/gpu/ragged.py", 'return "reported"\n', 'return "late"\n'),
    ("a plan whose results differ passes on a GPU", "lint/checks", "tests/gpu/ragged.py", '{"0": "ok", ', '{"0": "ok", "1": "ok", '),
    ("a plan holds weights that lie in a file", "part/llama_1b", "codegen/plan/plan_write.c", "if (c->file && !w->embed)", "if (c->file && !w->embed && c->bytes > 1 << 25)"),
    ("a compile reads all weights", "part/llama_1b", "runtime/plan/read.c", "if (length <= 2 * (uint64_t)PLAN_PROBE) return", "if (length <= (uint64_t)PLAN_PROBE << 30) return"),
    ("the preset static is not static", "cli/static", "CMakePresets.json", '"GRAPHC_STATIC_LLVM": "ON"', '"GRAPHC_STATIC_LLVM": "OFF"'),
    ("README counts other launches", "part/resnet50", "README.md", "| resnet50 | 56 | 1.00 |", "| resnet50 | 55 | 1.00 |"),
    ("pkg-config names another library", "cli/install", "runtime/install.cmake", "-L\\${libdir} -l${lib}\n", "-L\\${libdir} -l${lib}x\n"),
    ("the CMake package exports nothing", "cli/install", "runtime/install.cmake", "install(EXPORT graphcTargets NAMESPACE graphc::",
     "install(EXPORT graphcTargets NAMESPACE other::"),
    ("a public header is C alone", "cli/install", "frontend/driver/graphc_compile.h", "graphc_compiled_destroy(graphc_compiled *c);",
     "graphc_compiled_destroy(graphc_compiled *new);"),
    ("a source is formatted by hand", "lint/format", "graph/ir/ir.c", "#include \"graph/ir/ir.h\"", "#include   \"graph/ir/ir.h\""),
    ("a function of 70 lines, its signature wrapped", "lint/size", "graph/expr/expr_sum.c",
     "                  ExprSum *out) {\n    uint32_t i = 0", "                  ExprSum *out) {\n" + "    (void)a;\n" * 70 + "    uint32_t i = 0"),
    ("graph includes fusion", "lint/layers", "graph/ir/ir.c", '#include "graph/ir/ir.h"', '#include "graph/ir/ir.h"\n#include "fusion/fuse.h"'),
    ("a stage of fusion uses a later one", "lint/circles", "fusion/index/view.c", '#include "fusion/fuse.h"',
     '#include "fusion/fuse.h"\nvoid later(void) { schedule_lifetimes(0, 0); }'),
    ("two files of a room use each other", "lint/circles", "codegen/nvptx/tile.c", '#include "codegen/nvptx/contract.h"',
     '#include "codegen/nvptx/contract.h"\nvoid later(Gpu *g) { (void)gpu_contract(g); }'),
    ("a README names a file that is gone", "lint/tree", "graph/README.md", "Start with `ir/core_ops.def`", "Start with `ir/core_opz.def`"),
    ("a link names a heading that is gone", "lint/links", "tests/bench/RESULTS.md", "results/tools.md#the-last-run", "results/tools.md#the-first-run"),
    ("a section goes to the end of its file", "lint/checks", "tests/bench/sections.py", 'f.write(head.rstrip("\\n") + f"', 'f.write(head + mark + rest + f"'),
    ("a function for others that nobody calls", "lint/exports", "graph/grad/walk.c", "bool grad_wants(const Walk *w, Value x) {",
     "int grad_nobody(void);\nint grad_nobody(void) { return 1; }\n\nbool grad_wants(const Walk *w, Value x) {"),
    ("objects of sources that are gone are read", "lint/checks", "tests/lint/exports", '"$build/build.ninja" | (cd',
     '/dev/null; (cd "$build" && find CMakeFiles -name "*.o") | (cd'),
    ("an option is not in the manual page", "lint/documented", "frontend/driver/graphc.1", "\\-\\-fuse\\-at\\-most", "\\-\\-fuse\\-most"),
    # ---- the command line ----------------------------------------------------------------------------
    ("lists of targets are not completed", "cli/completions", "frontend/driver/completions/graphc.bash",
     """sed -n 's/^targets //p')" -- "${cur##*,}")""", """sed -n 's/^targets //p')" -- "$cur")"""),
    ("a stopped compile leaves its assembler", "cli/stopped", "codegen/nvptx/assembler.c", "prctl(PR_SET_PDEATHSIG, SIGKILL);", "(void)prctl;"),
    ("a field of JSON is not described", "cli/json", "frontend/driver/cli/cmd_inspect.c", 'json_object_set_new(j, "made_by",', 'json_object_set_new(j, "maker",'),
    ("a training plan is another where the model cannot be read for a moment", "cli/faulty", "frontend/driver/pipeline.c",
     "        GC_TRY(import_model(p->arena, p->diags, path, io, &model, &g));", "        return GRAPHC_OK;"),
    ("terms that cancel before a product are not seen", "cli/verify", "frontend/driver/bound.c",
     "op_info[op].cls == OPC_CONTRACT || op == OP_attention", "op == OP_attention"),
    ("a step at a tie is called wrong", "cli/verify", "frontend/driver/cli/verify/cmd_verify.c", "v->fine[i] = b->errors <= 1;", "v->fine[i] = false;"),
    ("a step that no tie explains is taken", "unit/test_bound", "frontend/driver/bound.c", "return bound > 0 ? fabs(got - want) / bound : INFINITY;",
     "return bound > 0 ? fabs(got - want) / bound : 0;"),
    ("positions count as certain", "unit/test_bound", "graph/eval/eval_position_error.c", "if (l->lo[i] < l->hi[first])", "if (l->lo[i] < l->lo[first])"),
    ("a product is stored and used alike", "unit/test_look", "graph/eval/eval_look.c", "return op == OP_mul ?", "return op == OP_none ?"),
    ("steps of what is less than a normal half are errors", "cli/verify", "frontend/driver/check.c", "fmax(t->unit * fabs(w), t->least)", "t->unit * fabs(w)"),
    ("sums of halves are rounded at once", "cli/verify", "graph/eval/eval_error.c",
     "if (ok && (op_join((Op)n->op) == OP_add", "if (ok && (op_join((Op)n->op) == OP_none"),
    ("a quotient by what may be 0 is certain", "cli/verify", "graph/eval/eval_map_error.c", "    case OP_div: keep_poles(c, n, most); break;", ""),
    ("a remainder does not jump", "cli/verify", "graph/eval/eval_map_error.c", "most[i] = fmax(most[i], by);", "(void)by;"),
    ("repetitions in each other take all memory", "unit/test_adapter fuzz/corpus", "runtime/train/adapter/pattern.c", "return r->last <= MAX_PLUSES;", "return true;"),
    ("a full disk goes unnoticed", "cli/faulty", "runtime/base/file.c",
     'if (!write_all(w->fd, data, size)) return fail_errno(why, "cannot be written");\n    w->size', "(void)write_all(w->fd, data, size);\n    (void)why;\n    w->size"),
    ("sizes may be negative", "cli/errors", "codegen/plan/plan_build.c", "if (lo >= 0 || map_get(b->sizes,", "if (lo != 0 || map_get(b->sizes,"),
    ("a text without an expected token is refused without a word", "fuzz/corpus", "graph/ir/parse.c",
     'return eat(r, token) || fail(r, arena_printf(r->arena, "\\"%s\\" expected", token));', "return eat(r, token);"),
    ("a workspace does not grow", "fuzz/soak", "runtime/bind.c", "if (m->p && m->bytes >= bytes) return GRAPHC_OK;", "if (m->p) return GRAPHC_OK;"),
    ("the reference without roundings is not asked", "cli/verify", "frontend/driver/cli/verify/cmd_verify.c",
     "return v->ok || !evaluated ? GRAPHC_OK : compare_between(v, t, c);", "(void)compare_between;\n    (void)evaluated;\n    return GRAPHC_OK;"),
    ("a part of a convolution sees too little of its image", "unit/test_look", "graph/eval/eval_slices.c",
     "begin + (p->count - 1) * step + reach", "begin + (p->count - 1) * step + 0 * reach"),
    ("verify looks into buffers that were used again", "unit/test_check", "frontend/driver/check.c",
     "return k->need <= k->intact && watch_host", "return watch_host"),
    ("verify names what a bad node feeds", "cli/planted", "frontend/driver/cli/verify/cmd_verify.c", "if (wrong) bad = x;", "(void)x;"),
    ("what a residual waits for is called an operand", "cli/json", "fusion/schedule/explain.c",
     "return reads_again(f, to, v) ? WHY_template_input : WHY_anchors;", "return reads_again(f, to, v) || f ? WHY_template_input : WHY_anchors;"),
    ("a document shows what is not so", "cli/documents", "models/TEN_MINUTES.md", "output logits  f32", "output logit  f32"),
    # ---- files, embedding ------------------------------------------------------------------------
    ("links lead anywhere", "unit/test_base cli/files", "runtime/base/file.c", "if (links.anywhere) return true;", "if (*base_path) return true;"),
    ("a damaged array is taken", "cli/files", "frontend/driver/tensors/npz.c", "return crc == entry->crc;", "return crc == entry->crc || entry->size;"),
    ("a cancelled compile goes on", "unit/test_compile", "codegen/compile.c", "    s->cancelled = true;\n", ""),
    ("a prepared plan's buffers live as if steps still were there", "models/prepared", "runtime/resident/prepared.c", "    b->last -= skipped;\n", ""),
    ("a loop in a prepared plan ends elsewhere", "models/prepared", "runtime/resident/prepared.c",
     "        if (s->kind != PLAN_STEP_kernel) s->match -= skipped;\n", ""),
    ("nobody hears that no kernel is done yet", "unit/test_compile", "codegen/compile.c", "    tell(&s, 0);\n", ""),
    ("a size that a run finds out is told before", "unit/test_session", "runtime/session.c",
     "s->plan->stage[slot] == PLAN_STAGE_run ? -1 : s->slots[slot]", "s->slots[slot]"),
    # ---- graph ---------------------------------------------------------------------------------
    ("a slice's size is off by one", "unit/test_expr", "graph/expr/expr_sum.c",
     "gap = t.coef > 0 ? expr_sub(p, v, u)", "gap = t.coef > 0 ? expr_sub(p, u, v)"),
    ("the evaluator's remainder has the other sign", "conformance_eval", "graph/eval/eval_scalar.c",
     "case OP_mod: return modulo(t, a, b);", "case OP_mod: return a - modulo(t, a, b);"),
    ("a resized image is fetched as it lies", "models/tensor_cores_small", "fusion/group/decide.c",
     "return conv ? !idx_try_window(f, g, v, d->idx) : ", "return conv ? false : "),
    ("halves of a gated unit stay one product", "unit/test_gir models/tensor_cores_small", "graph/pass/gates/pass_gates.c",
     "if (!at || meet_point(r, r->facts, other) != at) return 0;", "return 0;"),
    ("a pass does nothing", "unit/test_gir", "graph/pass/pass_bn_fold.c", "return rewrite_graph(g, fold, facts, NULL);",
     "(void)fold;\n    return rewrite_graph(g, NULL, facts, NULL);"),
    ("formulas of sizes are not bounded", "cli/bounds/some", "graph/build/build.c",
     "if (expr_size(g->exprs, t->dim[i]) > EXPR_MAX_SIZE) {", "if (false) {"),
    ("an empty axis is gathered from", "cli/errors", "graph/build/build_index.c",
     "if (expr_is_value(p, some, 1) || build_require(g, expr_max(p, some, none))) continue;",
     "if (expr_is_value(p, some, 1) || expr_max(p, some, none)) continue;"),
    ("contributed operators are off by 2e-4", "part/quick_gelu", "frontend/ops/contrib/ops_contrib.c",
     'Value gate = v_sigmoid(g, v_mulf(g, x, lower_f(l, "alpha")));', 'Value gate = v_sigmoid(g, v_mulf(g, x, 1.0002 * lower_f(l, "alpha")));'),
    ("a mask of leaves ends one early", "part/trees", "frontend/ops/ml/tree_masks.c", "~UINT64_C(0) >> (64 - (b->nleaves - low)) << low",
     "~UINT64_C(0) >> (65 - (b->nleaves - low)) << low"),
    # ---- gradients, training ----------------------------------------------------------------------
    ("tanh's gradient", "unit/test_grad conformance_grad/some", "graph/grad/rules.def", "MAP1(tanh,    MUL(dy, SUB(C(1), MUL(y, y))))",
     "MAP1(tanh,    MUL(dy, SUB(C(1), MUL(x, x))))"),
    ("softmax's gradient forgets the row's sum", "oracle/attention_gradients/some", "graph/grad/rules_composite.c",
     "Value of_row = build_unsqueeze(g, build_cast(g, lse, t), -1);",
     "Value of_row = build_unsqueeze(g, build_unary(g, OP_neg, build_cast(g, lse, t)), -1);"),
    ("Adam's second moment is not corrected", "unit/test_train", "graph/grad/update/optimizer.c", "OP_rsqrt, correction(g, o->beta2, step)",
     "OP_rsqrt, correction(g, o->beta1, step)"),
    ("weights decay with the gradient", "unit/test_train", "graph/grad/update/optimizer.c", "decayed(g, o, s->lr, p), move", "decayed(g, o, move, p), move"),
    ("gradients are clipped by half", "train/updates", "graph/grad/update/optimizer.c", "Value limit = build_scalar_f(g, DT_f32, o->clip);",
     "Value limit = build_scalar_f(g, DT_f32, o->clip / 2);"),
    ("a scale of f16 stays after an overflow", "train/updates", "graph/grad/update/guard.c", "build_binary_f(g, OP_mul, k->scale, 0.5)", "k->scale"),
    ("codes of 8 bits are one too high", "train/updates train/updates/some", "graph/grad/update/blockwise.c", "const double a = d.parts / (0.9 * d.scale), b = d.before + 1",
     "const double a = d.parts / (0.9 * d.scale), b = d.before + 2"),
    ("a turned convolution takes strides for dilations", "unit/test_gir", "graph/pass/conv/pass_turn_conv.c", "n->attr.conv.dilation, n->attr.conv.stride);", "n->attr.conv.stride, n->attr.conv.dilation);"),
    ("labels beyond the classes are learnt", "train/mistaken", "runtime/train/trainer/range.c", "a.range.hi >= classes) a.range.hi = classes - 1;", "a.range.hi > classes) a.range.hi = classes;"),
    ("ids beyond an embedding's rows are learnt", "train/mistaken", "graph/grad/positions.c", "*p = (Positions){-size, size - 1};", "*p = (Positions){-size, size};"),
    ("a run goes on with other data", "train/loop", "runtime/train/trainer/feed.c", "h = hash_bytes(s->ids, s->length * dtype_bytes(s->dtype), h);", ""),
    ("the cosine runs backwards", "train/data unit/test_train_data unit/test_loop", "runtime/train/schedule.c", "return (1 + cos(pi", "return (1 - cos(pi"),
    ("an adapter's alpha is not divided by its root", "unit/test_adapter", "runtime/train/adapter/config.c",
     "alpha / (c->rslora ? sqrt(r) : r)", "alpha / r"),
    ("a changed checkpoint is taken", "unit/test_checkpoint", "runtime/train/checkpoint_read.c",
     "if (m.size != bytes || strcmp(got, hash))", "if (m.size != bytes)"),
    # ---- fusion ------------------------------------------------------------------------------------
    ("a value is stored over what its kernel still reads", "unit/test_schedule_attention unit/test_schedule_step unit/test_schedule_random/all", "fusion/schedule/memory.c",
     "if (o->index != at || o->mask || i > store) return false;", "if (o->mask || i > store) return false;"),
    ("a state is overwritten before it is read", "unit/test_state unit/test_schedule_step unit/test_carries", "fusion/schedule/carries.c",
     "return read.first > read.last || read.last < made.first ||", "return read.first > read.last || read.last != made.first ||"),
    ("a fed operand is said to be packed", "unit/test_kir", "fusion/kir/kir_verify.c",
     "ok = ok && in_panels(v, t->b[i], value);", "ok = ok || in_panels(v, t->b[i], value);"),
    ("an attention waits for what it stores", "unit/test_schedule_attention", "fusion/group/walk.c",
     "if (!g && wanting && s->attn) {", "if (!g && wanting && s->attn && f->stuck) {"),
    ("fusion goes on after N decisions", "cli/decisions", "fusion/analyse/limit.c", "if (l->made == l->at_most) return false;",
     "if (l->made + 1 == l->at_most) return false;"),
    ("kernels are named after what they look through", "unit/test_gir", "fusion/body/names.c", "if ((noise && !noise_too)", "if ((noise && noise_too)"),
    ("kernels are shared by their hashes", "unit/test_kir", "fusion/kir/kir_set.c", "memcmp(t->words, words, n * sizeof *words) == 0", "true"),
    ("kernels that come to the same code are compiled again", "cli/bounds/some", "codegen/compile.c",
     "while (k && (k->hash != hash ||", "while (k && (k->hash || k->hash != hash ||"),
    ("progress is told from any thread", "unit/test_many", "codegen/compile.c", "if (of->tells) tell_begun(s);", "tell_begun(s);"),
    # ---- codegen -----------------------------------------------------------------------------------
    ("bf16 is cut, not rounded", "unit/test_codegen/all", "codegen/emit/convert.c", "if (to == DT_bf16) return f32_to_bf16(e, u);",
     "if (to == DT_bf16) return f32_to_bf16(e, and_c(e, u, 0xffff0000));"),
    ("logarithms of f64 are good to 1e-10", "unit/test_math", "codegen/emit/math_exp.c", "0.666666666666667, 0.3999999999989322,", "0.6666666667, 0.3999999999989322,"),
    ("angles beyond 2^30 lose their bits", "unit/test_math", "codegen/emit/math_trig.c", "#define NEAR   0x1p30", "#define NEAR   0x1p60"),
    ("walks from load to load wait one after the other", "unit/test_codegen", "codegen/cpu/rows_choose.c",
     "if (r->chained) r->tile_copies = CHAINS;", "if (r->chained) r->tile_copies = 1;"),
    ("planes become pixels one element at a time", "unit/test_codegen", "codegen/cpu/rows_choose.c", "r->joined = true;", "r->joined = n < 0;"),
    ("AVX2 takes the other side of a condition", "unit/test_codegen/all unit/test_templates/all part/avx2", "codegen/emit/emit.c",
     "LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), \"\");\n}\n\nLLVMValueRef emit_select",
     "LLVMBuildICmp(e->b, LLVMIntEQ, v, LLVMConstNull(LLVMTypeOf(v)), \"\");\n}\n\nLLVMValueRef emit_select"),
    ("a load comes before the condition that guards it", "cli/fenced", "codegen/emit/emit.c",
     "if (!e->isa->early_loads) region->certain = region->depth;", "(void)region;"),
    ("products of no rows are computed", "cli/fenced", "codegen/cpu/dot/dot.c",
     "Expr any = expr_min(p, d->m.size, expr_const(p, 1));", "Expr any = expr_const(p, 1);"),
    ("lanes behind the axis allow an access", "cli/fenced", "codegen/emit/emit_value.c",
     "LLVMValueRef m = combine(e, e->scope->mask, a->mask.v);", "LLVMValueRef m = combine(e, NULL, a->mask.v);"),
    # ---- runtime -----------------------------------------------------------------------------------
    ("sizes wrap", "cli/errors", "runtime/plan/eval.c", "return a == LOST || b == LOST || __builtin_mul_overflow(a, b, &r) ? LOST : kept(r);",
     "(void)r; return (int64_t)((uint64_t)a * (uint64_t)b);"),
    ("a scalar is read past its buffer", "unit/test_steps", "runtime/steps.c", "if (buffer_bytes(s, buffer) < bytes)", "if (buffer_bytes(s, buffer) > UINT64_MAX - bytes)"),
    ("attention's weights are coarse", "unit/test_math", "codegen/emit/math_exp.c", "0.0012482289457693696, 0.000215659718378447)", "0.0012482289457693696)"),
    ("a part of the work is left out", "unit/test_pool cli/reproducible/some part/threads", "runtime/cpu/pool.c",
     "j->fn(j->ctx, me, end - (n >> k), end - left);", "j->fn(j->ctx, me, end - (n >> k), end - left - (i > 1));"),
    ("who is held up keeps all waiting", "unit/test_pool", "runtime/cpu/pool.c", "i < n; i++) work_at(", "i < 1; i++) work_at("),
    ("who does not come keeps all waiting", "unit/test_pool", "runtime/cpu/pool.c", "work(p, &x, 0);", "work_at(p, &x, 0, 0);"),
    ("work is not split", "cli/reproducible/some", "runtime/cpu/device.c", "l->parts = part_count(l, work, cost);",
     "l->parts = (uint32_t)0 * part_count(l, work, cost) + 1;"),
    ("gaps of the arena stay empty", "part/resnet50", "runtime/memory.c", "gap < best_gap) {", "gap > best_gap) {"),
    ("two that are alive have one place", "unit/test_memory", "runtime/memory.c", "if (p->last < it->first ||", "if (p->last <= it->first ||"),
    ("a misuse has the status of a broken plan", "unit/test_session", "runtime/session.c", 'GRAPHC_USAGE, "the place for the tensor is NULL"',
     'GRAPHC_INVALID, "the place for the tensor is NULL"'),
    ("slices of a weight are read one byte further", "models/slices", "runtime/resident/crew.c", "GC_TRY(stage_fill(c->r, h->lane, cut->buffer, from, to", "GC_TRY(stage_fill(c->r, h->lane, cut->buffer, from + (from > 0), to"),
    ("the end of a weight in slices is not looked at", "models/slices", "runtime/resident/crew.c", "cut->buffer, length - PLAN_PROBE, PLAN_PROBE, tail, e", "cut->buffer, length - 2 * PLAN_PROBE, PLAN_PROBE, tail, e"),
    ("a thread leaves out what another one has not begun", "models/slices", "runtime/resident/crew.c", "if (take(&c->range[(own + i) % c->threads], true, task)) return true;", "if (take(&c->range[(own + i) % c->threads], true, task)) return false;"),
    ("a kernel that reads on is cut", "models/slices", "codegen/cpu/rows_slices.c", "if (most >= slice) return 0;", "if (most >= slice) most = 0;"),
    ("a GPU gets another architecture's code", "unit/test_cuda_launch", "runtime/resident/resident.c", "if (rank > best) *out = t;", "if (rank) *out = t;"),
    ("a lost device is used again", "unit/test_cuda_faults", "runtime/cuda/driver.c", "if (cuda_is_fatal(r)) __atomic_store_n", "if (cuda_is_fatal(r) && 0) __atomic_store_n"),
]
# Some cases of tests that take long: script and arguments.
PARTS = {"part/trees": ["tests/oracle/run.py", "build/bin/graphc", "ml", "--only", "tree_leaves"],
         "part/threads": ["tests/conformance/run.py", "build/bin/graphc", "--only", "test_attention_4d_gqa$"],  # 1 and 3 of them
         "part/avx2": ["tests/models/compare.py", "build/bin/graphc", ".cache/models", "mobilenet_v3_large", "--isa", "3"],
         "part/llama_1b": ["tests/models/claims.py", "build/bin/graphc", "llama_1b_bf16"],
         "part/resnet50": ["tests/models/claims.py", "build/bin/graphc", "resnet50"],
         "part/quick_gelu": ["tests/oracle/run.py", "build/bin/graphc", "contrib", "--only", "quick_gelu"]}
PROGRAMS = {"conformance_eval": ["suite_eval"], "conformance_grad/some": ["suite_grad"], "train/formats": ["train_tool"], "train/data": ["train_tool"],
            "cli/planted": ["planted"], "cli/fenced": ["fenced"], "oracle/attention_gradients/some": ["fenced"], "lint/checks": ["forks"], "cli/faulty": ["graphc_cli", "faulty"], "fuzz/soak": ["graphc_cli", "soak"],
            "fuzz/corpus": ["graphc_cli", *(f"replay_{f}" for f in ("onnx", "gir", "kir", "plan", "tensor", "safetensors"))]}


def targets(tests):
    for t in tests:
        if t in PROGRAMS:
            yield from PROGRAMS[t]
        elif t.startswith("unit/"):
            yield t.split("/")[1]
        elif not t.startswith("lint/") or t in ("lint/documented", "lint/exports"):
            yield "graphc_cli"


def sh(*args):
    return subprocess.run(args, cwd=ROOT, capture_output=True, text=True)


def fails(test):
    command = [sys.executable, *PARTS[test]] if test in PARTS else ["ctest", "--preset", "release", "--no-tests=error", "-R", f"^{test}$"]
    return sh(*command).returncode != 0


def try_one(tests, path, text, becomes):
    """What the tests say of the fault: "caught by ...", or what is wrong."""
    with open(path, encoding="utf-8") as f:
        whole = f.read()
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(whole.replace(text, becomes))
        build = list(dict.fromkeys(targets(tests)))
        made = build and sh("cmake", "--build", "build", "-j", str(len(os.sched_getaffinity(0))), "--target", *build)
        if made and made.returncode:
            return "DOES NOT COMPILE " + " ".join(re.findall(r"error: .*", made.stdout)[:2])
        failed = [t for t in tests if fails(t)]
        return "caught by " + ", ".join(failed) if failed else "NOT CAUGHT by " + ", ".join(tests)
    finally:
        with open(path, "w", encoding="utf-8") as f:
            f.write(whole)


def main():
    bad, words = 0, [a for a in sys.argv[1:] if a[0] != "-"]
    for name, tests, file, text, becomes in FAULTS:
        if words and not any(w in name for w in words):
            continue
        if "--list" in sys.argv:
            print(f"{name}: {tests}")
            continue
        path = os.path.join(ROOT, file)
        with open(path, encoding="utf-8") as f:
            found = f.read().count(text)
        if found != 1:
            bad += 1
            print(f"{name}: {file} has its text {found} times")
        elif "--check" not in sys.argv:
            said = try_one(tests.split(), path, text, becomes)
            bad += not said.startswith("caught")
            print(f"{name}: {said}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
