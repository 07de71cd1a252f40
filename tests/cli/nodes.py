"""A node that breaks its operator's rules is an error that names the node and the rule, never a plan."""
import os, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks

graphc, failures, count = sys.argv[1], 0, 0
f = lambda *shape: (T.FLOAT, shape)
i = lambda *shape: (T.INT64, shape)
b = lambda *shape: (T.BOOL, shape)
u8 = lambda *shape: (T.UINT8, shape)
i8 = lambda *shape: (T.INT8, shape)
c = lambda v: np.array(v, np.int64)    # constants, as initializers
cf = lambda v: np.array(v, np.float32)
MS, TRAINING, ML = "com.microsoft", "ai.onnx.preview.training", "ai.onnx.ml"


def bad(op, ins, text, attrs={}, opset=21, status=3, nout=1, domain=""):
    """ins: inputs by position, None = absent."""
    global failures, count
    count += 1
    inputs, constants, names = [], [], []
    for k, x in enumerate(ins):
        names.append("" if x is None else f"x{k}")
        if isinstance(x, np.ndarray):
            constants.append(numpy_helper.from_array(x, names[-1]))
        elif x is not None:
            inputs.append(h.make_tensor_value_info(names[-1], x[0], x[1]))
    node = h.make_node(op, names, [f"y{k}" for k in range(nout)], domain=domain, **attrs)
    outputs = [onnx.ValueInfoProto(name=o) for o in node.output]
    opsets = [h.make_opsetid("", opset)] + ([h.make_opsetid(domain, 1)] if domain else [])
    model = h.make_model(h.make_graph([node], "bad", inputs, outputs, constants), opset_imports=opsets, ir_version=10)
    with open("bad.onnx", "wb") as out:
        out.write(model.SerializeToString())
    p = forks.run([graphc, "bad.onnx", "-o", "bad.plan"], 60)
    if p.returncode != status or f'node 0 "y0" {op}: ' not in p.stderr or text not in p.stderr or os.path.exists("bad.plan"):
        failures += 1
        print(f"FAILED {op} {ins} {attrs}\n  exit {p.returncode}, wanted {status} and \"{text}\":\n  {p.stderr.strip()[:400]}")


def element_wise():
    bad("Add", [f(3), i(3)], "f32 and i64")
    bad("Add", [f(3), f(4)], "cannot be broadcast")
    bad("Sum", [f(3), None, f(3)], "input 1 is required")
    bad("Max", [], "input 0 is required")
    bad("Mean", [i(3)], "must be a float")
    bad("And", [i(3), i(3)], "must be bool")
    bad("Where", [f(3), f(3), f(3)], "must be bool")
    bad("Mod", [f(3), f(3)], "fmod = 1")
    bad("BitShift", [u8(3), u8(3)], "not one of LEFT, RIGHT", {"direction": "UP"})
    bad("BitShift", [u8(3), u8(3)], "'direction' is missing")
    bad("Cast", [f(3)], "element type unknown (99)", {"to": 99}, status=4)
    bad("Cast", [f(3)], "element type unknown (4294967297)", {"to": (1 << 32) + 1}, status=4)
    bad("Cast", [f(3)], "'to' has the wrong type", {"to": 1.0})
    bad("Cast", [f(3)], "not one of nearest, up, down", {"to": 1, "round_mode": "x"}, opset=24)
    bad("BitCast", [f(3)], "bits of f32", {"to": 11}, opset=26)
    bad("Clip", [f(3), cf([0, 1])], "element counts differ")
    bad("Relu", [f(3)], "no attribute 'alpha'", {"alpha": 1.0})
    bad("PRelu", [f(3), f(2, 3)], "does not broadcast to f32[3]")
    bad("Gelu", [f(2)], "not one of none, tanh", {"approximate": "erf"})
    bad("Celu", [f(2)], "alpha must not be 0", {"alpha": 0.0})
    bad("Softmax", [f(2, 3)], "axis 5 is out of range for rank 2", {"axis": 5})
    bad("Softmax", [f(2, 3)], "out of range", {"axis": -(1 << 63)})
    bad("Dropout", [f(2), f(), f()], "must be bool", nout=2)


def shapes():
    bad("Reshape", [f(2, 3), c([-2, 3])], "size 0 is negative")
    bad("Reshape", [f(2, 3), c([-1, -1])], "more than one size is -1")
    bad("Reshape", [f(2, 3), c([4, -1])], "element counts differ")
    bad("Reshape", [f(2, 3), c([2, 3, 0])], "size 2 is 0")
    bad("Reshape", [f(0, 3), c([0, -1])], "not both", {"allowzero": 1})
    bad("Reshape", [f(1), c([1] * 13)], "rank 13 exceeds 12")
    bad("Reshape", [f(2, 3), c([[3, 2]])], "has rank 2")
    bad("Reshape", [f(2, 3), cf([3, 2])], "must be an integer")
    bad("Flatten", [f(2, 3)], "axis 3 is out of range", {"axis": 3})
    bad("Squeeze", [f(2, 3), c([0])], "axis 0 has size 2, not 1")
    bad("Squeeze", [f(1, 3), c([0, 0])], "given twice")
    bad("Unsqueeze", [f(1, 3), c([4])], "out of range for rank 3")
    bad("Expand", [f(2, 3), c([2, 4])], "4 and 3")
    bad("Expand", [f(2, 1), c([2, -4])], "negative")
    bad("Transpose", [f(2, 3)], "'perm' has 1 axes, not 2", {"perm": [0]})
    bad("Transpose", [f(2, 3)], "twice in 'perm'", {"perm": [0, 0]})
    bad("Concat", [f(2, 3), f(3, 3)], "axis 0 of f32[2, 3] and f32[3, 3] differ", {"axis": 1})
    bad("Concat", [f(2, 3), f(2, 3)], "'axis' is missing")
    bad("Split", [f(6), c([1, 2])], "3 and 6", nout=2)
    bad("Split", [f(6)], "num_outputs does not match 2", {"num_outputs": 3}, nout=2)
    bad("Split", [f(6), c([3, 3])], "both num_outputs and sizes", {"num_outputs": 2}, nout=2)
    bad("Split", [f(7)], "do not split into 2 equal parts", opset=13, nout=2)
    bad("Slice", [f(6), c([0]), c([3]), c([0]), c([0])], "a step is 0")
    bad("Slice", [f(6, 6), c([0, 0]), c([3, 3]), c([1, -1])], "sliced twice")
    bad("Slice", [f(6), c([0]), c([3, 3])], "1 starts and 2 ends")
    bad("Tile", [f(2, 3), c([2])], "1 repeats for rank 2")
    bad("Tile", [f(2, 3), c([1 << 60, 1 << 60])], "too many elements")
    bad("DepthToSpace", [f(1, 4, 2, 2)], "not one of DCR, CRD", {"blocksize": 2, "mode": "XYZ"})
    bad("DepthToSpace", [f(1, 4, 2, 2)], "blocksize must be positive", {"blocksize": 0})
    bad("ConstantOfShape", [c([-1])], "negative")
    bad("ConstantOfShape", [c([1 << 40, 1 << 40])], "too many elements")
    bad("Constant", [], "0 values are given")
    bad("Constant", [], "2 values are given", {"value_int": 1, "value_float": 1.0})
    bad("Constant", [], "string", {"value_string": "x"}, status=4)
    bad("Range", [c(0), c(5), c(0)], "delta is 0")
    bad("Range", [cf(0), cf(np.nan), cf(1)], "endless")
    bad("Range", [c(0), cf(5), c(1)], "must be i64 like input 0")
    bad("EyeLike", [f(2)], "rank 2")
    bad("Trilu", [f(2, 2), f(1)], "must be an integer")
    bad("RandomUniform", [], "type i64", {"shape": [2], "dtype": 7})
    bad("Multinomial", [f(2, 3)], "sample_size is -2", {"sample_size": -2})
    bad("Bernoulli", [i(2)], "must be a float")


def indices():
    bad("Gather", [f(2, 3), f(1)], "indices of type f32")
    bad("GatherElements", [f(2, 3), i(2, 5)], "longer than axis 1 of f32[2, 3]", {"axis": 0})
    bad("GatherND", [f(2, 3), i(2, 2)], "batch_dims", {"batch_dims": 2})
    bad("GatherND", [f(2, 3), i(2, 3)], "3 indices for 2 axes")
    bad("ScatterElements", [f(3, 3), i(2, 3), f(2, 3)], "not one of none, add, mul, min, max", {"reduction": "sum"})
    bad("ScatterND", [f(3, 3), i(2, 1), f(2, 2)], "2 and 3")
    bad("TensorScatter", [f(2, 3, 8, 4), f(2, 3, 9, 4)], "longer than the cache", opset=24)
    bad("TopK", [f(2, 3), c([5])], "reaches outside", nout=2)
    bad("TopK", [f(2, 3), c([1, 1])], "must be one number", nout=2)
    bad("OneHot", [i(2), c(3), f(3)], "must be f32[2]")
    bad("OneHot", [i(2), c(-3), f(2)], "negative")
    bad("ReverseSequence", [f(2, 3), i(2)], "are the same", {"batch_axis": 0, "time_axis": 0})
    bad("Pad", [f(2, 3), c([1, 1])], "2 pads for 2 axes")
    bad("Pad", [f(2, 3), c([1, 1, 1, 1])], "not one of constant, reflect, edge, wrap", {"mode": "mirror"})
    bad("Pad", [f(0, 3), c([5, 5, 5, 5])], "axis 0 is empty", {"mode": "edge"})
    bad("Pad", [f(2, 3), c([-5, 0, 0, 0])], "negative")
    bad("CumSum", [f(2, 3), c([0, 1])], "must be one number")
    bad("NonMaxSuppression", [f(1, 5, 4), f(1, 1, 5), c([])], "must be one number")
    bad("NonMaxSuppression", [f(1, 5, 3), f(1, 1, 5), c([3])], "3 and 4")
    bad("Compress", [f(2, 3), b(2, 1)], "the condition has rank 2")
    bad("Unique", [f(2, 3)], "out of range", {"axis": 3})


def sums_and_products():
    bad("ReduceSum", [f(2, 3), c([5])], "axis 5 is out of range")
    bad("ReduceMean", [f(2, 3)], "ReduceMean-18 has no attribute 'axes'", {"axes": [0]}, opset=18)
    bad("MatMul", [f(2, 3), f(4, 5)], "inner sizes differ")
    bad("MatMul", [f(), f(4, 5)], "scalar")
    bad("Gemm", [f(2, 3), f(3, 5), f(7, 2, 5)], "does not broadcast to f32[2, 5]")
    bad("Gemm", [i(2, 3), i(3, 5)], "0.5", {"alpha": 0.5})
    bad("Einsum", [f(2, 3)], "1 labels for rank 2", {"equation": "i->"})
    bad("Einsum", [f(2, 3)], '"ij,jk->ik" is malformed', {"equation": "ij,jk->ik"})
    bad("Einsum", [f(2, 3), f(4, 5)], "sizes 3 and 4", {"equation": "ij,jk->ik"})
    bad("NegativeLogLikelihoodLoss", [f(3, 5), i(3)], "not one of none, sum, mean", {"reduction": "avg"})
    bad("NegativeLogLikelihoodLoss", [f(3, 5), i(3), f(3)], "must be f32[5]")
    bad("Conv", [f(1, 4, 8, 8), f(6, 4, 3, 3)], "group 4 does not divide 6", {"group": 4})
    bad("Conv", [f(1, 4, 8, 8), f(6, 4, 3, 3)], "kernel_shape says 5", {"kernel_shape": [5, 5]})
    bad("Conv", [f(1, 4, 8, 8), f(6, 4, 3, 3)], "not one of NOTSET", {"auto_pad": "SAME"})
    bad("Conv", [f(1, 4, 8, 8), f(6, 4, 3, 3), f(1)], "must be f32[6]")
    bad("Conv", [f(1, 4, 2, 2), f(6, 4, 3, 3)], "a window of 3 over 2 elements")
    bad("ConvTranspose", [f(1, 4, 8, 8), f(4, 6, 3, 3), f(4)], "must be f32[6]")
    bad("MaxPool", [f(1, 4, 8, 8)], "'kernel_shape' is missing")
    bad("MaxPool", [f(1, 4, 2, 2)], "a window of 5 along axis 2 has -2 positions", {"kernel_shape": [5, 5]})
    bad("LpPool", [f(1, 4, 8, 8)], "must be positive", {"kernel_shape": [3, 3], "p": 0})
    bad("LSTM", [f(5, 1, 3), f(1, 8, 3), f(1, 8, 2)], "not one of forward, reverse, bidirectional", {"direction": "x"})
    bad("LSTM", [f(5, 1, 3), f(1, 8, 3), f(1, 8, 2)], "2 and 3", {"hidden_size": 3})
    bad("LSTM", [f(5, 1, 3), f(2, 8, 3), f(2, 8, 2)], "2 and 1", {"hidden_size": 2})
    bad("LSTM", [f(5, 1, 3), f(1, 8, 3), f(1, 8, 2)], 'activation "Foo"', {"activations": ["Foo", "Tanh", "Tanh"]}, status=4)
    bad("GRU", [f(5, 1, 3), f(1, 6, 3), f(1, 6, 2)], "must be positive", {"clip": -1.0})
    bad("DFT", [f(1, 8, 3)], "size 1 (real) or 2 (complex)", opset=20)
    bad("DFT", [f(1, 8, 2)], "needs a real input", {"onesided": 1}, opset=20)
    bad("DFT", [f(1, 8, 1), None, c([])], "must be one number", opset=20)
    bad("STFT", [f(1, 16, 1), c(0), f(4)], "must be positive", opset=17)


def norms_and_quantisation():
    bad("LayerNormalization", [f(2, 3), f(4, 2, 3)], "does not broadcast to f32[2, 3]")
    bad("LayerNormalization", [f(2, 3), f(3)], "stash_type 7", {"stash_type": 7}, status=4)
    bad("InstanceNormalization", [f(2, 3, 4), f(4), f(4)], "must be f32[3]")
    bad("GroupNormalization", [f(2, 4, 4), f(2), f(2)], "must be f32[4]", {"num_groups": 2})
    bad("BatchNormalization", [f(2, 3, 4), f(3), f(3), f(4), f(3)], "input 3 is f32[4]")
    bad("QuantizeLinear", [f(2, 3), f(), f()], "f32 is no type to quantise to")
    bad("QuantizeLinear", [f(2, 6), f(), i8()], "output_dtype is u8, the zero point i8", {"output_dtype": 2})
    bad("QuantizeLinear", [f(2, 6), f(2, 3)], "3 and 2", {"block_size": 5, "axis": 1})
    bad("DequantizeLinear", [f(2, 3), f()], "input 0 is f32")
    bad("DequantizeLinear", [u8(2, 3), f(), i8()], "must be u8 like input 0")
    bad("MatMulInteger", [f(2, 3), f(3, 4)], "8 bits or less")
    bad("QLinearMatMul", [f(2, 3), f(), u8(), u8(3, 4), f(), u8(), f(), u8()], "8 bits or less")


def sampling():
    image = f(1, 1, 4, 4)
    bad("Resize", [image, None, None, c([1, 1, 8, 8])], "stretch, not_larger, not_smaller", {"keep_aspect_ratio_policy": "x"})
    bad("Resize", [image, None, cf([1, 1, 2, 2]), c([1, 1, 8, 8])], "both scales and sizes")
    bad("Resize", [image, None, None, c([1, 1, -8, 8])], "size 2 is negative")
    for scale in (-2, 0, np.nan, np.inf, 1e30):
        bad("Resize", [image, None, cf([1, 1, scale, 2])], "scale 2 is")
    for scale in (1e-9, 1e-40):
        bad("Resize", [image, None, cf([1, 1, scale, 2])], "less than 1/16", {"mode": "cubic", "antialias": 1}, status=4)
    bad("Resize", [image, None, cf(2)], "as many scales as axes")
    bad("Resize", [image, None, None, c([8, 8])], "given twice", {"axes": [2, 2]})
    bad("Upsample", [image, cf([1, 1, 2, 2])], "supported up to opset 9", opset=10, status=4)
    bad("GridSample", [image, f(1, 4, 4, 3)], "3 and 2")
    bad("GridSample", [image, f(1, 4, 4, 2)], "not one of zeros, border, reflection", {"padding_mode": "x"})
    bad("RoiAlign", [image, f(2, 4), i(2)], "not one of avg, max", {"mode": "min", "sampling_ratio": 2})
    bad("RoiAlign", [image, f(2, 4), i(2)], "bins of -3", {"output_height": -3, "sampling_ratio": 2})
    bad("AffineGrid", [f(1, 2, 4), c([1, 1, 4, 4])], "4 and 3", opset=20)


def attention():
    bad("Attention", [f(1, 3, 4, 8), f(1, 2, 4, 8), f(1, 2, 4, 8)], "3 heads of Q", opset=23)
    bad("Attention", [f(1, 2, 4, 8)] * 3, "qk_matmul_output_mode is 7", {"qk_matmul_output_mode": 7}, opset=23)
    bad("Attention", [f(1, 4, 8)] * 3, "3-D inputs need q_num_heads", opset=23)
    bad("RotaryEmbedding", [f(1, 2, 4, 8), f(1, 4, 1), f(1, 4, 1)], "rotary_embedding_dim is 3", {"rotary_embedding_dim": 3}, opset=23)
    bad("CausalConvWithState", [f(1, 2, 8), f(2, 1, 3), None, f(1, 2, 5)], "5 and 2", opset=27, nout=2)
    bad("MatMulNBits", [f(1, 64), u8(8, 2, 16), f(16)], "K 4611686018427387904", {"K": 1 << 62, "N": 8, "block_size": 32}, domain=MS)
    bad("MatMulNBits", [f(1, 64), u8(8, 2, 16), f(16), None, i(3)], "g_idx wants 64 groups", {"K": 64, "N": 8, "block_size": 32}, domain=MS)
    bad("GroupQueryAttention", [f(1, 4, 16)], "input 5 is required", {"num_heads": 2, "kv_num_heads": 1}, domain=MS)
    bad("MoE", [f(2, 4), f(2, 3), f(3, 8, 4)], "input 4 is required", domain=MS)
    bad("EmbedLayerNormalization", [i(1, 4), None, None, f(4, 8), None, f(8), f(8)], "input 2 is required", domain=MS, nout=2)


def classic():
    tree = dict(nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
                nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0], nodes_truenodeids=[1, 0, 0],
                nodes_falsenodeids=[2, 0, 0])
    leaves = dict(target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.0, 2.0])
    for change, text in ((dict(nodes_falsenodeids=[7, 0, 0]), "a node of tree 0 leads to none"),
                         (dict(nodes_modes=["BRANCH_LEQ", "BRANCH_LT", "LEAF"], nodes_truenodeids=[1, 1, 0],
                               nodes_falsenodeids=[2, 1, 0]), "lies below itself"),
                         (dict(nodes_nodeids=[0, 1, 1]), "out of range or there twice"),
                         (dict(nodes_featureids=[4, 0, 0]), "needs 5 features, the input has 4"),
                         (dict(nodes_values=[0.5]), "1 numbers for 3 nodes"),
                         (dict(nodes_modes=["BRANCH", "LEAF", "LEAF"]), "'nodes_modes' has 'BRANCH'"),
                         (dict(target_nodeids=[1, 9]), "node 9 of tree 0, which is none"),
                         (dict(target_ids=[0, 1]), "'target' 1 of 1"), (dict(n_targets=0), "'n_targets' is 0"),
                         (dict(base_values=[1.0, 2.0]), "2 numbers for 1 targets")):
        bad("TreeEnsembleRegressor", [f(3, 4)], text, {**tree, **leaves, **change}, domain=ML)
    bad("TreeEnsembleRegressor", [f(3, 4, 5)], "not of rank 3", {**tree, **leaves}, domain=ML)
    linear = dict(coefficients=[1.0] * 8, intercepts=[0.0, 1.0])
    bad("LinearClassifier", [f(3, 4)], "labels are strings", {**linear, "classlabels_strings": ["a", "b"]}, status=4, nout=2, domain=ML)
    bad("LinearClassifier", [f(3, 5)], "is for 4 features", {**linear, "classlabels_ints": [0, 1]}, nout=2, domain=ML)
    bad("LinearRegressor", [f(3, 4)], "'intercepts' has 2 numbers", linear, domain=ML)
    bad("SVMRegressor", [f(3, 4)], "2 coefficients for 3", dict(coefficients=[1.0, 2.0], rho=[0.0], n_supports=3,
                                                              support_vectors=[0.0] * 12), domain=ML)
    bad("SVMRegressor", [f(3, 4)], "7 numbers, not a row for each of 2",
        dict(coefficients=[1.0, 2.0], rho=[0.0], n_supports=2, support_vectors=[0.0] * 7, kernel_type="RBF",
             kernel_params=[1.0, 0.0, 3.0]), domain=ML)
    bad("Scaler", [f(3, 4)], "cannot be broadcast", {"offset": [0.0, 1.0, 2.0]}, domain=ML)
    bad("FeatureVectorizer", [f(3, 4), f(3, 2)], "1 numbers for 2 inputs", {"inputdimensions": [4]}, domain=ML)


def others():
    bad("SequenceConstruct", [f(1), i(1)], "must be f32 like input 0")
    bad("SequenceAt", [f(1), c(0)], "must be a sequence")
    bad("Adam", [f(), i(), f(2), f(2), f(2)], "4 groups", domain=TRAINING)
    bad("Gelu", [f(1)], "convert the model to opset 20", opset=19, status=4)


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    for group in (element_wise, shapes, indices, sums_and_products, norms_and_quantisation, sampling, attention, classic, others):
        group()

print(f"{count} bad nodes, {failures} failures")
sys.exit(failures != 0)
