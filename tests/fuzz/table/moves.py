"""Rows of operators that move elements."""
import numpy as np
from onnx import numpy_helper

from .node import ANY, NP, T, Refused, rows


# --- shapes and moves -------------------------------------------------------------------------------------------------

@rows("Transpose")
def transpose(n, kind):
    s = n.shape(0, 5)
    perm = list(range(len(s)))
    n.r.shuffle(perm)
    return [n.x(s, n.pick(*ANY))], {"perm": perm} if perm and n.chance(0.8) else {}


@rows("Reshape")
def reshape(n, kind):
    s = n.shape(0, 4)
    whole = int(np.prod(s))
    to = []
    for d in s:  # each size as it is, split, or joined with the one before
        by = n.pick(*[b for b in range(1, d + 1) if d % b == 0]) if d else 0
        if to and n.chance(0.3):
            to[-1] *= d
        elif d and n.chance(0.4):
            to += [by, d // by]
        else:
            to.append(d)
    allow = 1 if 0 in to and n.chance() else 0
    if whole:
        if to and n.chance(0.4):
            to[n.r.randrange(len(to))] = -1
        for i, d in enumerate(to):
            if not allow and i < len(s) and d == s[i] and n.chance(0.2):
                to[i] = 0
    elif not allow and any(d == 0 and (i >= len(s) or s[i] != 0) for i, d in enumerate(to)):
        raise Refused
    return [n.x(s, n.pick(*ANY)), n.side(to)], {"allowzero": 1} if allow else {}


@rows("Flatten", "Squeeze", "Unsqueeze", "Shape", "Size")
def forms(n, kind):
    s = n.shape(0, 4)
    x, r = n.pick(*ANY), len(s)
    if kind == "Flatten":
        return [n.x(s, x)], {"axis": n.r.randint(-r, r)} if n.chance(0.8) else {}
    if kind == "Shape":
        return [n.x(s, x)], {k: n.r.randint(-r - 1, r + 1) for k in ("start", "end") if n.chance()}
    if kind == "Size":
        return [n.x(s, x)], {}
    if kind == "Squeeze":
        ones = [i - (r if n.chance(0.3) else 0) for i, d in enumerate(s) if d == 1 and n.chance(0.7)]
        n.fixed = not ones  # which go may not depend on what is fed
        return [n.x(s, x)] + ([n.const(ones)] if ones else []), {}
    k = n.r.randint(1, 2)
    return [n.x(s, x), n.const([a - (r + k if n.chance(0.4) else 0) for a in n.r.sample(range(r + k), k)])], {}


@rows("Expand", "Tile")
def repeat(n, kind):
    s = n.shape(0 if kind == "Expand" else 1, 4)
    n.broadcasts = kind == "Expand"
    x = n.x(s, n.pick(*ANY))
    if kind == "Tile":
        return [x, n.side([n.pick(1, 1, 2, 3, 0) for _ in s])], {}
    to = [n.pick(2, 3, 5, 0) if d == 1 and n.chance() else 1 if n.chance(0.2) else d for d in s]
    more = n.shape(0, 1) if n.chance(0.3) else []
    return [x, n.side(more + to) if all(d in (1, t) for d, t in zip(s, to)) else n.const(more + to)], {}  # a 1 that is fed never broadcasts


@rows("Concat")
def concat(n, kind):
    s = n.shape(1)
    a, axis = n.axis(s)
    t = n.pick(*ANY)
    return [n.x(s[:a] + [n.size()] + s[a + 1:], t) for _ in range(n.r.randint(1, 4))], {"axis": axis}


@rows("Split")
def split(n, kind):
    s = n.shape(1)
    a, axis = n.axis(s)
    k = n.r.randint(1, 4)
    n.many, n.outs = True, k
    x = n.x(s, n.pick(*ANY)) if not n.chance() else None
    if x and n.opset >= 18:
        if -(-s[a] // k) * (k - 1) > s[a]:
            raise Refused
        return [x], {"axis": axis, "num_outputs": k}
    parts = [n.r.randint(0, 4) for _ in range(k)]
    return [n.x(s[:a] + [sum(parts)] + s[a + 1:], n.pick(*ANY)), n.side(parts)], {"axis": axis}


@rows("Slice")
def cut(n, kind):
    s = n.shape(1)
    at, axes = n.some_axes(len(s))
    big = 2 ** 63 - 1
    starts, ends, steps = [], [], []
    for a in at:
        by = n.pick(1, 1, 1, 2, 3, -1, -2)
        starts.append(n.r.randint(-s[a] - 2, s[a] + 2) if n.chance(0.8) else n.pick(big, -big - 1))
        far = (-big - 1, -(2 ** 31)) if by < 0 else (big, -big - 1, 2 ** 31 - 1)  # backwards to INT_MAX: all, says onnxruntime alone
        ends.append(n.r.randint(-s[a] - 2, s[a] + 2) if n.chance(0.7) else n.pick(*far))
        steps.append(by)
    t = n.pick("i64", "i32") if max(map(abs, starts + ends)) < 2 ** 31 else "i64"
    ins = [n.x(s, n.pick(*ANY)), n.side(starts, t), n.side(ends, t), n.const(axes, t)]
    return ins + ([n.const(steps, t)] if n.chance(0.8) else []), {}


@rows("Pad")
def pad(n, kind):
    s = n.shape(1, 4, zero=False)
    mode = n.pick("constant", "constant", "edge", "reflect", *(["wrap"] if n.opset >= 19 else []))
    most = lambda d: 3 if mode in ("constant", "edge") else d - 1 if mode == "reflect" else d
    sides = [[n.r.randint(0, min(3, most(d))) if n.chance() else 0 for d in s] for _ in range(2)]
    if mode == "constant" and n.chance(0.3):
        a = n.r.randrange(len(s))
        sides[n.r.randint(0, 1)][a] = -1 if s[a] > 1 else 0
    t = n.pick("f32", "f64", "i32", "i64", "u8", "i8", "bool")
    ins = [n.x(s, t), n.side(sides[0] + sides[1])]
    if mode == "constant" and n.chance():
        ins.append(n.const(1, t) if n.chance(0.8) else "")
    return ins, {"mode": mode} if mode != "constant" or n.chance() else {}


@rows("Trilu", "EyeLike")
def band(n, kind):
    s = (n.shape(0, 2) if kind == "Trilu" else []) + [n.size(), n.size()]
    if kind == "EyeLike":
        return [n.x(s, n.pick("f32", "i32", "f64"))], {"k": n.r.randint(-3, 3), **({"dtype": T[n.pick("f32", "i64", "f64", "i32")]} if n.chance() else {})}
    ins = [n.x(s, n.pick("f32", "f64", "i64", "bool"))]
    return ins + ([n.side(n.r.randint(-5, 5))] if n.chance(0.7) else []), {"upper": n.r.randint(0, 1)} if n.chance(0.8) else {}


@rows("DepthToSpace", "SpaceToDepth")
def blocks(n, kind):
    b = n.pick(1, 2, 3)
    c, y, x = n.size(False), n.r.randint(1, 4), n.r.randint(1, 4)
    t = n.pick("f32", "f64", "u8") if kind[0] == "D" else n.pick("f32", "f64")
    if kind[0] == "D":
        return [n.x([n.pick(1, 2), c * b * b, y, x], t)], {"blocksize": b, **({"mode": n.pick("DCR", "CRD")} if n.chance() else {})}
    return [n.x([n.pick(1, 2), c, y * b, x * b], t)], {"blocksize": b}


@rows("CenterCropPad")
def crop(n, kind):
    if n.opset < 18:
        raise Refused
    s = n.shape(1, 4, zero=False)
    at, axes = n.some_axes(len(s))
    return [n.x(s, "f32"), n.side([n.r.randint(1, 9) for _ in at])], {"axes": axes}


@rows("ReverseSequence")
def reverse(n, kind):
    s = [n.size(False), n.size(False)] + n.shape(0, 2)
    b = n.r.randint(0, 1)
    return [n.x(s, n.pick("f32", "i64", "u8")), n.put(n.rng.integers(1, s[1 - b] + 1, [s[b]]).astype(np.int64))], {"batch_axis": b, "time_axis": 1 - b}


# --- gathers and scatters -------------------------------------------------------------------------------------------------

def ids(n, shape, size):
    if not size:
        raise Refused
    return n.put(n.rng.integers(-size, size, shape).astype(n.pick(np.int64, np.int32)), None if n.chance() else True)


@rows("Gather", "GatherElements")
def gather(n, kind):
    s = n.shape(1)
    a, axis = n.axis(s)
    shape = n.shape(0, 2) if kind == "Gather" else [d if i == a or not d else n.r.randint(1, d) for i, d in enumerate(s)]
    if kind == "GatherElements":
        shape[a] = n.size(0 in s)
    return [n.x(s, n.pick(*ANY)), ids(n, shape, s[a])], {"axis": axis} if n.chance(0.8) or axis else {}


@rows("GatherND", "ScatterND")
def nd(n, kind):
    n.fixed = True
    s = n.shape(1, 4, zero=False)
    b = n.r.randint(0, len(s) - 1) if kind == "GatherND" and n.chance(0.3) else 0
    k = n.r.randint(1, len(s) - b)
    lead = s[:b] + n.shape(0 if b else 1, 2)
    if kind == "GatherND":
        i = np.stack([n.rng.integers(-d, d, lead) for d in s[b:b + k]], -1).astype(np.int64)
        return [n.x(s, n.pick(*ANY)), n.put(i)], {"batch_dims": b} if b else {}
    t = n.pick("f32", "f64", "i64")
    red = n.pick(None, "none", "add", "mul", *(["max", "min"] if n.opset >= 18 else []))
    spots = int(np.prod(s[:k]))
    if red in (None, "none"):
        flat = n.rng.permutation(spots)[:n.r.randint(1, spots)]
        i = np.stack(np.unravel_index(flat, s[:k]), -1).astype(np.int64)
    else:
        i = np.stack([n.rng.integers(-d, d, lead) for d in s[:k]], -1).astype(np.int64)
    return [n.x(s, t), n.put(i), n.x(list(i.shape[:-1]) + s[k:], t)], {"reduction": red} if red else {}


@rows("ScatterElements")
def scatter(n, kind):
    s = n.shape(1, 3, zero=False)
    a, axis = n.axis(s)
    red = n.pick(None, "add", "mul", *(["max", "min"] if n.opset >= 18 else []))
    shape = [n.r.randint(1, d) for d in s]
    i = n.rng.integers(-s[a], s[a], shape)
    if not red:
        i = np.stack([n.rng.permutation(s[a])[:shape[a]] for _ in range(int(np.prod(shape)) // shape[a])], -1)
        i = np.moveaxis(i.reshape([shape[a]] + shape[:a] + shape[a + 1:]), 0, a)
    t = n.pick("f32", "f64", "i64", "i32", "u8") if not red else n.pick("f32", "f64", "i64")
    return [n.x(s, t), n.put(i.astype(np.int64)), n.x(shape, t)], {"axis": axis, **({"reduction": red} if red else {})}


@rows("OneHot")
def one_hot(n, kind):
    s, d = n.shape(0, 3), n.r.randint(1, 6)
    t = n.pick("f32", "i64", "i32")
    return [n.put(n.rng.integers(-d - 1, d + 2, s).astype(n.pick(np.int64, np.int32))), n.side(d), n.x([2], t)], {"axis": n.r.randint(-len(s) - 1, len(s))}


@rows("Compress", "NonZero", "Unique")
def counted(n, kind):
    s = n.shape(1, 3, zero=False)
    a, axis = n.axis(s)
    if kind == "NonZero":
        return [n.x(s, n.pick("f32", "i64", "bool", "i32", "u8"), whole=True)], {}
    if kind == "Unique":
        n.outs, n.many = n.r.randint(1, 4), True
        return [n.x(s, n.pick("f32", "i64", "i8"), whole=True)], {**({"axis": axis} if n.chance() else {}), **({"sorted": n.r.randint(0, 1)} if n.chance() else {})}
    whole = n.chance(0.4)
    return [n.x(s, n.pick("f32", "i64", "u8")), n.x([n.r.randint(1, int(np.prod(s)) if whole else s[a])], "bool")], {} if whole else {"axis": axis}


@rows("Range", "ConstantOfShape")
def sources(n, kind):
    if kind == "ConstantOfShape":
        t = n.pick(*ANY)
        return [n.side(n.shape(0, 3))], {"value": numpy_helper.from_array(np.asarray([1], NP[t]))} if n.chance(0.7) else {}
    t = n.pick("i64", "i32", "f32", "f64")
    n.constant = n.constant or t[0] == "f"
    by = n.pick(1, 2, -1, 3)
    return [n.side(n.r.randint(-3, 3), t), n.side(n.r.randint(-3, 9) * (1 if by > 0 else -1), t), n.side(by, t)], {}
