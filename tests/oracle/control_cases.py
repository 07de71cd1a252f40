"""Branches and loops whose sizes only the run finds out, as detection models have them. Whole models in
ONNX's textual form; onnxruntime gives the reference for each set of inputs."""
import os

import numpy as np
import onnx
from onnx import numpy_helper, parser

from cases import run_ort

rng = np.random.default_rng(21)
HEAD = '<ir_version: 10, opset_import: ["": 21]> agraph '


class Case:
    def __init__(self, name, text, **inputs):
        self.name, self.text, self.inputs = name, text, inputs

    def write(self, folder, skipped):
        model = parser.parse_model(HEAD + self.text)
        try:
            results = run_ort(model, self.inputs)
        except Exception as e:  # onnxruntime's own exceptions have no common base
            skipped.append(f"{self.name}: {str(e).splitlines()[0][:200]}")
            return
        data = os.path.join(folder, self.name, "test_data_set_0")
        os.makedirs(data, exist_ok=True)
        onnx.save(model, os.path.join(folder, self.name, "model.onnx"))
        for kind, values in (("input", self.inputs.values()), ("output", results)):
            for i, value in enumerate(values):
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                    f.write(numpy_helper.from_array(np.asarray(value)).SerializeToString())


cases = []


def each(name, text, **sets):
    """One case for every set of inputs."""
    for tag, inputs in sets.items():
        cases.append(Case(f"{name}_{tag}", text, **inputs))


x = rng.standard_normal((7, 4)).astype(np.float32)
cells = np.arange(24, dtype=np.int32).reshape(8, 3)
some, none = dict(x=x), dict(x=-np.abs(x))

# Nothing left, or what is left in another form: the branches agree on rank and type alone.
each("if_empty", """(float[n, 4] x) => (float[k, 4] y, int64[k] which, float[4] sum) {
    zero = Constant<value_float = 0.0>()
    first = Constant<value_ints = [0]>()
    last = Constant<value_ints = [1]>()
    col = Slice(x, first, last, last)
    flat = Squeeze(col, last)
    hit = Greater(flat, zero)
    nz = NonZero(hit)
    ids = Squeeze(nz, first)
    count = Size(ids)
    izero = Constant<value_int = 0>()
    any = Greater(count, izero)
    y, which = If(any) <
        then_branch = some() => (float[p, 4] a, int64[p] b) { a = Gather<axis = 0>(x, ids)
                                                              b = Identity(ids) },
        else_branch = none() => (float[q, 4] c, int64[q] d) { half = Constant<value_ints = [3]>()
                                                              c = Slice(x, first, half, first)
                                                              d = Constant<value_ints = [9, 8, 7]>() }>
    e = Exp(y)
    sum = ReduceSum<keepdims = 0>(e, first)
}""", some=some, none=none)

# The same pattern inside of a branch, and its result used as a size.
each("if_nested", """(float[n, 4] x, bool[1] deep) => (float[k, 4] y, float[k] z) {
    first = Constant<value_ints = [0]>()
    y = If(deep) <
        then_branch = outer() => (float[p, 4] a) {
            big = Constant<value_float = 0.0>()
            one = ReduceMax<keepdims = 0>(x, first)
            top = ReduceMax<keepdims = 0>(x)
            wide = Greater(top, big)
            a = If(wide) <
                then_branch = two() => (float[r, 4] b) { b = Concat<axis = 0>(x, x) },
                else_branch = one_() => (float[s, 4] c) { c = Neg(x) }>
        },
        else_branch = none() => (float[q, 4] d) { end = Constant<value_ints = [1]>()
                                                  d = Slice(x, first, end, first) }>
    axis = Constant<value_ints = [1]>()
    z = ReduceL2<keepdims = 0>(y, axis)
}""", deep_wide=dict(**some, deep=np.array([True])), deep_narrow=dict(**none, deep=np.array([True])),
     flat=dict(**some, deep=np.array([False])))

# A long loop whose body reads by the iteration number and finds out a size of its own.
each("loop_counts", """(float[n, 4] x, int64 trips) => (float[4] sum, int64[k] sizes) {
    start = Constant<value_floats = [0.0, 0.0, 0.0, 0.0]>()
    go = Constant<value = bool {1}>()
    first = Constant<value_ints = [0]>()
    sum, sizes = Loop(trips, go, start) <
        body = turn(int64 i, bool c, float[4] s) => (bool c2, float[4] s2, int64 size) {
            c2 = Identity(c)
            n0 = Shape<start = 0, end = 1>(x)
            n1 = Squeeze(n0, first)
            at = Mod(i, n1)
            row = Gather<axis = 0>(x, at)
            zero = Constant<value_float = 0.0>()
            hit = Greater(row, zero)
            nz = NonZero(hit)
            ids = Squeeze(nz, first)
            size = Size(ids)
            got = Gather<axis = 0>(row, ids)
            add = ReduceSum<keepdims = 0>(got, first)
            s2 = Add(s, add)
        }>
}""", long=dict(**some, trips=np.array(90)), none=dict(**none, trips=np.array(3)))


# Sizes that are values: parts of a split, ends of a slice counted from either side, how many to keep.
each("sizes_by_value", """(float[n, 4] x, int64[n] expert) => (float[a, 4] y0, float[b, 4] y1, float[n, 4] y, float[d, 4] tail,
                                                           float[k, 4] top, float[m, 4] mid) {
    classes = Constant<value_ints = [0, 1, 2]>()
    first = Constant<value_ints = [0]>()
    col = Unsqueeze(expert, first)
    rows = Constant<value_ints = [-1, 1]>()
    row = Reshape(classes, rows)
    same = Equal(col, row)
    ones = Cast<to = 7>(same)
    one = Constant<value_ints = [1]>()
    counts = ReduceSum<keepdims = 0>(ones, one)
    y0, y1, y2 = Split<axis = 0>(x, counts)
    z1 = Exp(y1)
    y = Concat<axis = 0>(y0, z1, y2)
    c0 = Gather<axis = 0>(counts, first)
    minus = Neg(c0)
    far = Constant<value_ints = [9223372036854775807]>()
    tail = Slice(x, minus, far, first)
    top, at = TopK<axis = 0>(x, c0)
    all = Constant<value_ints = [4]>()
    ends = Concat<axis = 0>(minus, all)
    starts = Concat<axis = 0>(first, first)
    mid = Slice(x, starts, ends)
}""", mixed=dict(x=x, expert=np.array([2, 0, 1, 0, 2, 0, 1])), one=dict(x=x[:3], expert=np.array([2, 2, 0])),
     empty=dict(x=x, expert=np.array([2, 1, 1, 2, 2, 2, 1])))


# Lists of positions that are fed, of a length that another list tells.
each("slice_lists", """(int32[8, 3] x, int64[k] from, int64[k] to) => (int32[a, b] y, int32[c, d] z, int32[e, f] w, int32[g, h] v) {
    axes = Constant<value_ints = [-2, 1]>()
    steps = Constant<value_ints = [2, 1]>()
    ends = Constant<value_ints = [-1, 5]>()
    starts = Constant<value_ints = [1, 0]>()
    y = Slice(x, from, ends, axes, steps)
    z = Slice(x, from, ends)
    w = Slice(x, starts, to)
    v = Slice(x, from, to, axes)
}""", ahead=dict(x=cells, **{"from": np.array([2, 1]), "to": np.array([7, 2])}),
     behind=dict(x=cells, **{"from": np.array([-7, -2]), "to": np.array([-1, 9])}))


# Sizes that values decide where nothing but the arithmetic bounds them: a sum of a mask, and durations
# between 1 and 5 of at most n tokens, which a length regulator lays out one after the other.
each("sizes_by_sum", """(float[n, 4] x) => (float[n, 4] y, float[m] ones, int64[m] at, float[p, 4] spread, float[k, 4, 2] wide) {
    zero = Constant<value_float = 0.0>()
    first = Constant<value_ints = [0]>()
    flat = Constant<value_ints = [-1]>()
    hit = Greater(x, zero)
    where = NonZero(hit)
    places = Transpose<perm = [1, 0]>(where)
    mask = Reshape(hit, flat)
    int = Cast<to = 7>(mask)
    count = ReduceSum<keepdims = 1>(int, first)
    seven = Constant<value_float = 7.0>()
    ones = Expand(seven, count)
    y = ScatterND(x, places, ones)
    i0 = Constant<value_int = 0>()
    i1 = Constant<value_int = 1>()
    length = Squeeze(count, first)
    at = Range(i0, length, i1)
    mean = ReduceMean<keepdims = 0>(x, axis)
    axis = Constant<value_ints = [1]>()
    soft = Sigmoid(mean)
    four = Constant<value_float = 4.0>()
    long = Mul(soft, four)
    round = Ceil(long)
    duration = Cast<to = 7>(round)
    end = CumSum(duration, i0)
    last = Gather<axis = 0>(end, flat)
    total = Squeeze(last, first)
    frame = Range(i0, total, i1)
    column = Unsqueeze(frame, axis)
    done = GreaterOrEqual(column, end)
    past = Cast<to = 7>(done)
    token = ReduceSum<keepdims = 0>(past, axis)
    spread = Gather<axis = 0>(x, token)
    d0 = Gather<axis = 0>(duration, first)
    tail = Constant<value_ints = [4, 2]>()
    shape = Concat<axis = 0>(d0, tail)
    halves = Unsqueeze(row, last_axis)
    last_axis = Constant<value_ints = [-1]>()
    row = Gather<axis = 0>(x, first)
    keep = Equal(shape, flat)
    fill = ConstantOfShape<value = int64[1] {1}>(three)
    three = Constant<value_ints = [3]>()
    chosen = Where(keep, fill, shape)
    wide = Expand(halves, chosen)
}""", some=some, none=none, one=dict(x=x[:1]))

# A branch and an inner loop whose results a loop stacks, and which the body reads again.
each("stacked_control", """(float[n, 4] x, int64[m] bounds) => (float[t, 1, 4] y, float[t, p, 4] z, float[4] last) {
    first = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    i1 = Constant<value_int = 1>()
    length = Size(bounds)
    trips = Sub(length, i1)
    start = Constant<value_floats = [0.0, 0.0, 0.0, 0.0]>()
    go = Constant<value = bool {1}>()
    last, y, z = Loop(trips, go, start) <
        body = turn(int64 i, bool c, float[4] s) => (bool c2, float[4] s2, float[1, 4] part, float[p, 4] inner) {
            c2 = Identity(c)
            at = Unsqueeze(i, first)
            next = Add(at, one)
            behind = Add(next, one)
            from = Slice(bounds, at, next)
            to = Slice(bounds, next, behind)
            none = Equal(from, to)
            part = If(none) <
                then_branch = empty() => (float[1, 4] a) { row = Slice(x, first, one)
                                                           a = Neg(row) },
                else_branch = some() => (float[1, 4] b) { rows = Slice(x, from, to)
                                                          b = ReduceSum(rows, first) }>
            flat = Squeeze(part, first)
            s1 = Add(s, flat)
            two = Constant<value_int = 70>()
            s2, inner = Loop(two, go, s1) <
                body = deep(int64 j, bool d, float[4] u) => (bool d2, float[4] u2, float[4] v) {
                    d2 = Identity(d)
                    half = Constant<value_float = 0.5>()
                    u2 = Mul(u, half)
                    v = Add(u, flat)
                }>
        }>
}""", some=dict(x=x, bounds=np.array([0, 2, 2, 5, 7])))

# What exporters make of a Python list that a loop appends to, and of one that counts by itself.
each("appended", """(float[n, 4] x) => (float[k, 4] joined, float[4, k] stacked, int64 count, float[4] second, int64 end) {
    go = Constant<value = bool {1}>()
    none = SequenceEmpty()
    first = Constant<value_ints = [0]>()
    rows = Shape<start = 0, end = 1>(x)
    limit = Squeeze(rows, first)
    i0 = Constant<value_int = 0>()
    i1 = Constant<value_int = 1>()
    list, end, lines = Loop("", go, none, i0, none) <
        body = turn(int64 i, bool c, seq(float[1, 4]) list_in, int64 at, seq(float[4]) lines_in)
            => (bool more, seq(float[1, 4]) list_out, int64 at2, seq(float[4]) lines_out) {
            place = Unsqueeze(at, first)
            row = Gather<axis = 0>(x, place)
            e = Exp(row)
            list_out = SequenceInsert(list_in, e)
            line = Squeeze(row, first)
            lines_out = SequenceInsert(lines_in, line)
            step = Constant<value_int = 2>()
            at2 = Add(at, step)
            more = Less(at2, limit)
        }>
    joined = ConcatFromSequence<axis = 0>(list)
    stacked = ConcatFromSequence<axis = 1, new_axis = 1>(lines)
    count = SequenceLength(list)
    second = SequenceAt(lines, i1)
}""", odd=dict(x=x), even=dict(x=x[:4]))

# The axis that rows of results are put along, counted from the back: unrolled, and as a loop.
for size in ("3", "n"):
    each(f"scan_from_the_back_{size}", f"""(float[{size}, 4] x, float[4] start) => (float[4] last, float[4, {size}] sums) {{
    last, sums = Scan(start, x) <num_scan_inputs = 1, scan_output_axes = [-1],
        body = turn(float[4] s, float[4] row) => (float[4] s2, float[4] out) {{ s2 = Add(s, row)
                                                                            out = Tanh(s2) }}>
}}""", three=dict(x=x[:3], start=x[3]))
