"""Small graphs as exporters make them, compiled for sm_90a in 16 bits: every large contraction of theirs runs on tensor
cores by warpgroups (wgmma), in no more kernels than are said here. Each was on the generic kernel once, or took a kernel
more. Nothing runs, so no GPU or assembler is needed.

    tensor_cores_small.py GRAPHC [NAME...]
"""
import os, re, subprocess, sys, tempfile
import numpy as np, onnx, onnx.parser
from onnx import numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tensor_cores import kernels

LEAST = 8e6
CASES = {}  # name -> most kernels of a run, inputs, nodes, arguments; what begins with w_ is a weight
STEP = ["train", "--loss", "mse(y, target)", "--batch", "4", "--plan-only"]
INTS = {}  # those of whole numbers


def case(name, most, inputs, nodes, arguments=()):
    CASES[name] = most, inputs, nodes, arguments


def attr(name, values):
    return f"{name}={values}".replace(" ", "")


def conv(x, w, y, k=3, groups=1):
    return f"{y} = Conv<{attr('pads', [k // 2] * 4)},group={groups}>({x}, {w})\n"


IMAGE = "float[2,64,32,32] x"
case("resized", 3, f"{IMAGE}, float[64,64,3,3] w_c, float[4] w_s", """
    r = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor">(x, , w_s)
    """ + conv("r", "w_c", "y"))
case("pixel_shuffle", 5, f"{IMAGE}, float[256,64,3,3] w_a, float[64,64,3,3] w_b",
     conv("x", "w_a", "a") + 'b = DepthToSpace<blocksize=2,mode="CRD">(a)\n' + conv("b", "w_b", "y"))
for groups, channels in ((8, 10), (9, 24), (13, 16), (2, 100), (3, 48), (4, 112)):
    n = groups * channels
    case(f"groups_{groups}x{channels}", 3, f"float[4,{n},28,28] x, float[{n},{channels},3,3] w_c",
         conv("x", "w_c", "y", groups=groups))
case("geglu", 2, "float[512,320] x, float[320,1024] w_a, float[1024] w_b, float[] w_two, float[] w_one", """
    a = MatMul(x, w_a)
    b = Add(a, w_b)
    h, g = Split<axis=-1,num_outputs=2>(b)
    s = Div(g, w_two)
    e = Erf(s)
    f = Add(e, w_one)
    u = Mul(g, f)
    y = Mul(h, u)
    """)
case("gelu_gated", 2, "float[512,320] x, float[320,512] w_a, float[320,512] w_b, float[] w_c, float[] w_one", """
    u = MatMul(x, w_a)
    v = MatMul(x, w_b)
    u2 = Mul(u, u)
    u3 = Mul(u2, u)
    c = Mul(u3, w_c)
    s = Add(u, c)
    t = Tanh(s)
    f = Add(t, w_one)
    g = Mul(u, f)
    y = Mul(g, v)
    """)
case("wave", 2, "float[2,64,1000] x, float[256,64,3] w_a, float[256] w_b", """
    a = Conv<dilations=[2],pads=[2,2]>(x, w_a, w_b)
    t, s = Split<axis=1,num_outputs=2>(a)
    g = Sigmoid(s)
    h = Tanh(t)
    y = Mul(h, g)
    """)
case("heads", 4, "float[2,8,128,128] q, float[2,8,128,64] v, float[512,256] w_o, int64[2] w_rows", """
    a = MatMul(q, v)
    b = Transpose<perm=[0,2,1,3]>(a)
    c = Reshape(b, w_rows)
    y = MatMul(c, w_o)
    """)
case("up_1d", 10, "float[1,128,1024] x, float[128,64,16] w_t", "y = ConvTranspose<strides=[8],pads=[4,4]>(x, w_t)\n")
case("up_2d", 6, "float[2,128,16,16] x, float[128,64,4,4] w_t", "y = ConvTranspose<strides=[2,2],pads=[1,1,1,1]>(x, w_t)\n")
case("together", 4, f"{IMAGE}, float[2,64,32,32] skip, float[64,64,3,3] w_a, float[64,128,3,3] w_b",
     conv("x", "w_a", "a") + "b = Concat<axis=1>(a, skip)\n" + conv("b", "w_b", "y"))
case("wide_heads", 6, "float[2,256,256] q, float[2,256,256] k, float[2,256,256] v", """
    s = MatMul(q, k)
    p = Softmax(s)
    y = MatMul(p, v)
    """)
case("tokens", 3, "float[2,300,256] x, float[256,256] w_o, int64[1] w_first, int64[1] w_last, int64[1] w_axis", """
    a = Slice(x, w_first, w_last, w_axis)
    y = MatMul(a, w_o)
    """)
case("attention_step", 29, "float[4,256,256] x, float[256,768] w_qkv, float[256,256] w_o, int64[4] w_heads, int64[3] w_joined", """
    a = MatMul(x, w_qkv)
    q, k, v = Split<axis=2,num_outputs=3>(a)
    """ + "".join(f"{t}s = Reshape({t}, w_heads)\n{t}h = Transpose<perm=[0,2,1,3]>({t}s)\n" for t in "qkv") + """
    kt = Transpose<perm=[0,1,3,2]>(kh)
    s = MatMul(qh, kt)
    p = Softmax<axis=-1>(s)
    o = MatMul(p, vh)
    ot = Transpose<perm=[0,2,1,3]>(o)
    r = Reshape(ot, w_joined)
    y = MatMul(r, w_o)
    """, STEP)
case("wide_heads_open", 5, "float[2,n,256] q, float[2,n,256] k, float[2,n,256] v, float[256,256] w_o", """
    t = Transpose<perm=[0,2,1]>(k)
    s = MatMul(q, t)
    p = Softmax(s)
    o = MatMul(p, v)
    y = MatMul(o, w_o)
    """)
case("shuffled", 4, "float[4,64,32,32] x, float[4,64,32,32] z, float[128,128,1,1] w_c, int64[5] w_apart, int64[4] w_together",
     """
    a = Concat<axis=1>(x, z)
    b = Reshape(a, w_apart)
    c = Transpose<perm=[0,2,1,3,4]>(b)
    d = Reshape(c, w_together)
    """ + conv("d", "w_c", "y", k=1))
case("modulated", 6, "float[2,64,32,32] x, float[2,1,64,1,1] style, float[1,64,64,3,3] w_m, int64[4] w_wide, int64[4] w_all",
     """
    a = Mul(w_m, style)
    b = Reshape(a, w_all)
    c = Reshape(x, w_wide)
    """ + conv("c", "b", "y", groups=2))
case("lstm", 11, "float[100,16,128] x, float[1,512,128] w_w, float[1,512,128] w_r", "y = LSTM<hidden_size=128>(x, w_w, w_r)\n")
case("frames", 3, "float[4,1,8192] x, float[258,1,512] w_c", "y = Conv<strides=[128]>(x, w_c)\n")
case("odd_weights", 2, "float[512,180] x, float[180,540] w_a", "y = MatMul(x, w_a)\n")
case("all_pairs", 3, "float[1,64,18,22] x, float[1,64,18,22] z, int64[3] w_pairs", """
    a = Reshape(x, w_pairs)
    b = Reshape(z, w_pairs)
    t = Transpose<perm=[0,2,1]>(a)
    y = MatMul(t, b)
    """)
for size in (36, 20, 100):
    case(f"heads_of_{size}", 6, f"float[2,512,{12 * size}] x, int64[5] w_heads_{size}, int64[1] w_axis, float[{4 * size},64] w_o, "
         f"int64[2] w_back_{size}", f"""
    a = Reshape(x, w_heads_{size})
    b = Transpose<perm=[2,0,3,1,4]>(a)
    q, k, v = Split<axis=0,num_outputs=3>(b)
    t = Transpose<perm=[0,1,2,4,3]>(k)
    s = MatMul(q, t)
    p = Softmax(s)
    o = MatMul(p, v)
    c = Transpose<perm=[0,1,3,2,4]>(o)
    d = Reshape(c, w_back_{size})
    y = MatMul(d, w_o)
    """)
    INTS |= {f"w_heads_{size}": [2, 512, 3, 4, size], f"w_back_{size}": [1024, 4 * size]}
INTS |= {"w_heads": [4, 256, 4, 64], "w_joined": [4, 256, 256],
         "w_rows": [256, 512], "w_first": [44], "w_last": [300], "w_axis": [1],
         "w_apart": [4, 2, 64, 32, 32], "w_together": [4, 128, 32, 32], "w_wide": [1, 128, 32, 32],
         "w_pairs": [1, 64, 396], "w_all": [128, 64, 3, 3]}
FLOATS = {"w_s": [1, 1, 2, 2], "w_two": 1.4142135, "w_one": 1, "w_c": 0.044715}


def weight(value, rng):
    name, t = value.name, value.type.tensor_type
    shape = [d.dim_value for d in t.shape.dim]
    if name in INTS and t.elem_type == onnx.TensorProto.INT64:
        return numpy_helper.from_array(np.array(INTS[name], np.int64), name)
    if name in FLOATS and np.prod(shape) <= 4:
        return numpy_helper.from_array(np.array(FLOATS[name], np.float32).reshape(shape), name)
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)


def write(name, path):
    _, inputs, nodes, _ = CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {name} ({inputs}) => (float y) {{{nodes}}}')
    g, rng = model.graph, np.random.default_rng(0)
    g.output[0].type.tensor_type.ClearField("shape")
    weights = [v for v in g.input if v.name.startswith("w_")]
    g.initializer.extend(weight(v, rng) for v in weights)
    for v in weights:
        g.input.remove(v)
    onnx.save(model, path)


def wrong(graphc, name, precision):
    with tempfile.TemporaryDirectory() as tmp:
        write(name, f"{tmp}/m.onnx")
        p = subprocess.run([graphc, *CASES[name][3], f"{tmp}/m.onnx", "-o", f"{tmp}/m.plan", "--target", "sm_90a",
                            "--precision", precision, "--dump-ir", f"{tmp}/dump"], capture_output=True, text=True)
        if p.returncode:
            return [f"exit {p.returncode}: {p.stderr.strip()[-300:]}"]
        text, bad, seen = open(f"{tmp}/dump/post-fusion.kir").read(), [], 0
        names = [k for k in re.findall(r"^kernel (\S+)", text, re.M) if not k.startswith("prepare_")]
        if len(names) > CASES[name][0]:
            bad.append(f"{len(names)} kernels: {' '.join(names)}")
        for kernel, products in kernels(text):
            code = f"{tmp}/dump/{kernel}.ptx"
            if products < LEAST or not os.path.exists(code):
                continue
            seen += 1
            if "wgmma.mma_async" not in open(code).read():
                bad.append(f"{kernel} is not on tensor cores")
        return bad + ([] if seen else ["no large contraction"])


def main():
    graphc, failed = os.path.abspath(sys.argv[1]), 0
    for i, name in enumerate(sys.argv[2:] or CASES):
        bad = wrong(graphc, name, ("f16", "bf16")[i % 2])
        failed += bool(bad)
        print(f"{name}: {'FAILED ' + '; '.join(bad) if bad else 'ok'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
