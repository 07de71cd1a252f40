"""ai.onnx.ml: preparation of features, linear models, support vectors, trees with every question they can ask."""
import glob, itertools, json, os

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cases import Cases, run_ort

ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
rng = np.random.default_rng(11)
cases = Cases()


def each(name, op, *inputs, ml=3, nout=1, tolerance=(1e-5, 1e-6), keep=None, ref=None, **attrs):
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    c = cases.new(name, ml=ml, tolerance=tolerance, free={n: {0: "n"} for n in feeds}, keep=keep, **feeds)
    c.op(op, *feeds, domain=ML, nout=nout, ref=ref, **attrs)


def rows(n=17, f=5, dtype=np.float32):
    return rng.standard_normal((n, f)).astype(dtype)


x = rows()
holes = x.copy()
holes[rng.random(holes.shape) < 0.2] = np.nan
whole = rng.integers(-2, 5, (17, 3))
same = dict(f32=x, f64=x.astype(np.float64), i64=(3 * x).astype(np.int64), i32=(3 * x).astype(np.int32))

for t, v in same.items():
    each(f"scaler_{t}", "Scaler", v, offset=[0.5, -1.0, 0.0, 2.0, 0.25], scale=[2.0, 1.0, 0.5, -1.0, 3.0])
    for norm in ("MAX", "L1", "L2"):
        each(f"normalizer_{norm}_{t}", "Normalizer", np.abs(v) if norm == "MAX" else v, norm=norm)
    each(f"linear_regressor_{t}", "LinearRegressor", v.astype(np.float32), coefficients=x[:2].ravel().tolist(),
         intercepts=[0.5, -1.0], targets=2)
    for k, labels in ((1, [4, 9]), (3, [7, 1, 2])):
        for post in POSTS[:3]:
            if k == 1 and post == "SOFTMAX":
                continue
            each(f"linear_classifier_{k}_{post}_{t}", "LinearClassifier", v, nout=2, classlabels_ints=labels,
                 coefficients=rng.standard_normal(5 * k).tolist(), intercepts=rng.standard_normal(k).tolist(),
                 post_transform=post)
ends = [v for t in ("i32", "i64") for v in [np.array([np.iinfo(same[t].dtype).min, -3, -2, 0, 2, 3, np.iinfo(same[t].dtype).max], same[t].dtype)]]
for v, threshold in itertools.product([*same.values(), *ends], (0.5, -2.5, 3e9, -3e9, 1e30, -1e30)):
    each(f"binarizer_{v.dtype}_{v.size}_{threshold:g}", "Binarizer", v, threshold=threshold,
         ref=lambda v, threshold=np.float32(threshold): (v > np.float64(threshold)).astype(v.dtype))
each("scaler_one", "Scaler", x, offset=[0.5], scale=[2.0])
each("imputer_nan", "Imputer", holes, imputed_value_floats=[1.0, 2.0, 3.0, 4.0, 5.0], replaced_value_float=float("nan"))
each("imputer_one", "Imputer", holes, imputed_value_floats=[7.0], replaced_value_float=float("nan"))
each("imputer_int", "Imputer", whole, imputed_value_int64s=[10, 11, 12], replaced_value_int64=3)
each("one_hot_i64", "OneHotEncoder", whole, cats_int64s=[3, 0, 1], zeros=1)
each("one_hot_f32", "OneHotEncoder", whole.astype(np.float32), cats_int64s=[3, 0, 1], zeros=1)
each("vectorizer", "FeatureVectorizer", x, x[:, :2], inputdimensions=[5, 2])
each("labels_i_f", "LabelEncoder", whole, ml=2, keys_int64s=[1, 3, 0], values_floats=[0.5, 1.5, 2.5], default_float=-7.0)
each("labels_f_i", "LabelEncoder", whole.astype(np.float32), ml=2, keys_floats=[1.0, 3.0, 0.0], values_int64s=[5, 6, 7],
     default_int64=-3)
each("labels_f_f", "LabelEncoder", whole.astype(np.float32), ml=4, keys_floats=[1.0, 3.0, 0.0], values_floats=[5.0, 6.5, 7.0],
     default_float=-3.0)
each("labels_nan", "LabelEncoder", holes, ml=4, keys_floats=[float("nan"), float(x[0, 0])], values_int64s=[5, 6])
each("labels_tensor", "LabelEncoder", whole, ml=4, keys_tensor=numpy_helper.from_array(np.array([4, 1, 0])),
     values_tensor=numpy_helper.from_array(np.array([1.5, -2.5, 3.5])),
     default_tensor=numpy_helper.from_array(np.array([9.0])))

for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
    kernel = dict(kernel_type=kind, kernel_params=[0.3, 0.5, 3.0])
    each(f"svm_regressor_{kind}", "SVMRegressor", x, support_vectors=rows(6).ravel().tolist(), n_supports=6,
         coefficients=rng.standard_normal(6).tolist(), rho=[0.25], tolerance=(1e-4, 1e-4), **kernel)
    for count, proba in itertools.product(([3, 4], [2, 3, 4]), (False, True)):
        k, v = len(count), sum(count)
        pairs = k * (k - 1) // 2
        more = dict(prob_a=(-1 - rng.random(pairs)).tolist(), prob_b=rng.standard_normal(pairs).tolist()) if proba else {}
        each(f"svm_classifier_{kind}_{k}_{int(proba)}", "SVMClassifier", x, nout=2, classlabels_ints=[4, 8, 2][:k],
             vectors_per_class=count, support_vectors=rows(v).ravel().tolist(), rho=rng.standard_normal(pairs).tolist(),
             coefficients=rng.standard_normal((k - 1) * v).tolist(), tolerance=(1e-3, 1e-3), **kernel, **more)


class Trees:
    """Random trees as lists: node i of a tree is [mode, feature, value, yes, no, whether NaN is a yes]."""

    def __init__(self, n, depth, features, modes, grid):
        self.trees = [self.grow(depth, features, modes, grid) for _ in range(n)]

    def grow(self, depth, features, modes, grid):
        nodes = []

        def add(d):
            i = len(nodes)
            nodes.append(["LEAF", 0, 0.0, 0, 0, 0])
            if d and rng.random() < 0.85:
                value = float(np.float32(rng.choice(grid)))
                yes, no = add(d - 1), add(d - 1)
                nodes[i] = [str(rng.choice(modes)), int(rng.integers(features)), value, yes, no, int(rng.random() < 0.5)]
            return i

        add(depth)
        return nodes

    def grow_leaves(self, n, features, modes, grid):
        """Leaf by leaf: deep where chance has it."""
        nodes = [["LEAF", 0, 0.0, 0, 0, 0]]
        for _ in range(n - 1):
            at = rng.choice([i for i, node in enumerate(nodes) if node[0] == "LEAF"][-6:])
            yes = len(nodes)
            nodes += [["LEAF", 0, 0.0, 0, 0, 0], ["LEAF", 0, 0.0, 0, 0, 0]]
            nodes[at] = [str(rng.choice(modes)), int(rng.integers(features)), float(np.float32(rng.choice(grid))), yes, yes + 1,
                         int(rng.random() < 0.5)]
        return nodes

    def nodes(self):
        flat = [(t, i, *n) for t, tree in enumerate(self.trees) for i, n in enumerate(tree)]
        names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids",
                 "missing_value_tracks_true")
        return {f"nodes_{n}": list(c) for n, c in zip(names, zip(*flat))}

    def weights(self, kind, k, only=None, positive=False):
        rows = [(t, i, c, abs(w) if positive else w) for t, tree in enumerate(self.trees) for i, n in enumerate(tree)
                if n[0] == "LEAF" for c in (range(k) if only is None else [only]) for w in rng.standard_normal(1).tolist()]
        return {f"{kind}_{n}": list(c) for n, c in zip(("treeids", "nodeids", "ids", "weights"), zip(*rows))}


grid = np.unique(np.round(x.ravel(), 1))
special = np.concatenate([grid, [np.inf, -np.inf]])
edges = np.round(rows(40), 1)
edges[rng.random(edges.shape) < 0.1] = np.nan
edges[rng.random(edges.shape) < 0.05] = np.inf
edges[rng.random(edges.shape) < 0.05] = -np.inf
for i, (modes, depth) in enumerate(itertools.product([[m] for m in MODES] + [MODES], (1, 4, 9))):
    for fold, k in (("SUM", 1), ("AVERAGE", 3), ("MIN", 2), ("MAX", 1)):
        trees = Trees(6, depth, 5, modes, special)
        each(f"tree_regressor_{i}_{fold}", "TreeEnsembleRegressor", edges, aggregate_function=fold, n_targets=k,
             base_values=rng.standard_normal(k).tolist(), **trees.nodes(), **trees.weights("target", k))
for dtype in (np.float32, np.float64):  # masks of 32 and 64 bits, their last bits, and one leaf too many
    for leaves in (1, 2, 31, 32, 33, 63, 64, 65):
        trees = Trees(5, 3, 5, MODES[:4], grid)
        trees.trees += [trees.grow_leaves(leaves, 5, MODES[:4], grid) for _ in range(3)]
        each(f"tree_leaves_{leaves}_{np.dtype(dtype).name}", "TreeEnsembleRegressor", edges.astype(dtype), n_targets=1,
             **trees.nodes(), **trees.weights("target", 1))
for i, (post, k) in enumerate(itertools.product(POSTS[:4], (2, 3, 5))):
    trees = Trees(7, 4, 5, MODES[:2], grid)
    base = {} if i % 2 else dict(base_values=rng.standard_normal(k).tolist())
    if k > 2:
        each(f"tree_classifier_{k}_{post}", "TreeEnsembleClassifier", edges, nout=2, post_transform=post,
             classlabels_int64s=[5, 3, 9, 1, 0][:k], **base, **trees.nodes(), **trees.weights("class", k))
        continue
    for positive, only in itertools.product((False, True), (0, 1, None)):
        # with weights for both of two classes onnxruntime's label is 0 or 1, whatever the labels are
        each(f"tree_classifier_{k}_{post}_{int(positive)}_{only}", "TreeEnsembleClassifier", edges, nout=2,
             post_transform=post, classlabels_int64s=[5, 3],
             keep=["o0_TreeEnsembleClassifier_1"] if only is None else None, **trees.nodes(),
             **trees.weights("class", k, only=only, positive=positive))
# as_tensor: values in f64, which f32 cannot tell apart
fine = Trees(5, 5, 5, MODES[:4], grid)
node = fine.nodes()
values = np.array(node.pop("nodes_values")) + 1e-12
weights = fine.weights("target", 1)
each("tree_f64", "TreeEnsembleRegressor", (edges.astype(np.float64) + 1e-12), n_targets=1, **node,
     nodes_values_as_tensor=helper.make_tensor("v", 11, values.shape, values),
     target_weights_as_tensor=helper.make_tensor("w", 11, [len(weights["target_weights"])], weights.pop("target_weights")),
     **weights)


def ensemble(name, dtype, members):
    """TreeEnsemble of opset 5: two stumps and a deeper tree."""
    t = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    v = rows(40, 4, dtype).round(1)
    more = dict(membership_values=helper.make_tensor("m", t, [6], [0.5, 1.0, np.nan, -0.5, 0.2, np.nan])) if members else {}
    modes = [6, 1, 6, 3, 0] if members else [0, 1, 2, 3, 4]
    each(name, "TreeEnsemble", v, ml=5, n_targets=2, aggregate_function=1, post_transform=0, tree_roots=[0, 3, 4],
         nodes_featureids=[0, 1, 2, 3, 0], nodes_modes=helper.make_tensor("o", 2, [5], modes),
         nodes_splits=helper.make_tensor("s", t, [5], [0.1, -0.2, 0.3, 0.4, 0.0]),
         nodes_truenodeids=[1, 0, 3, 5, 7], nodes_trueleafs=[0, 1, 1, 1, 1],
         nodes_falsenodeids=[2, 1, 4, 6, 8], nodes_falseleafs=[0, 1, 1, 1, 1],
         leaf_targetids=[0, 1, 0, 1, 0, 1, 0, 1, 0],
         leaf_weights=helper.make_tensor("w", t, [9], rng.standard_normal(9).tolist()), **more)


ensemble("ensemble_f32", np.float32, False)
ensemble("ensemble_f64", np.float64, False)
ensemble("ensemble_members", np.float32, True)


class Export:
    """A model of ml/, as scikit-learn 1.9 (skl2onnx 1.20), LightGBM 4.7 and XGBoost 3.2 (onnxmltools 1.16) wrote it."""

    def __init__(self, path):
        self.path, self.name = path, "export_" + os.path.basename(path)[:-5]

    def write(self, folder, skipped):
        model = onnx.load(self.path)
        given = model.graph.input[0]
        width = given.type.tensor_type.shape.dim[1].dim_value
        fed = rng.integers(0, 6, (23, width)) if given.type.tensor_type.elem_type == 7 else rows(23, width)
        if fed.dtype == np.float32 and "nan" in self.name:
            fed[rng.random(fed.shape) < 0.2] = np.nan
        data = os.path.join(folder, self.name, "test_data_set_0")
        os.makedirs(data)
        got = run_ort(model, {given.name: fed})
        onnx.save(model, os.path.join(folder, self.name, "model.onnx"))
        for kind, values in (("input", [fed]), ("output", got)):
            for i, v in enumerate(values):
                if isinstance(v, list):  # of ZipMap: a dict a row
                    v = np.array([[row[label] for label in sorted(row)] for row in v], np.float32)
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                    f.write(numpy_helper.from_array(v).SerializeToString())
        with open(os.path.join(folder, self.name, "data.json"), "w") as f:
            json.dump({"rtol": 1e-3, "atol": 1e-4}, f)


for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ml", "*.onnx"))):
    cases.append(Export(path))
