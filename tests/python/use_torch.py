"""torch tensors in and out without a copy: run by package.py in a folder with model.onnx."""
import numpy as np
import torch

import graphc
import overhead

plan = graphc.compile("model.onnx")
x = torch.rand(4, 32)
want = plan.run(x=x.numpy())["y"]
with plan.session(threads=1) as s:
    y = s.run(x=x)["y"]
    assert isinstance(y, torch.Tensor) and np.array_equal(y.numpy(), want)
    assert s._in[0].tensor.data == x.data_ptr(), "the input was copied"
    assert s._out[0].tensor.data == y.data_ptr(), "the output was copied"
    out = torch.empty(4, 50)
    assert s.run(x=x, out={"y": out})["y"] is out and torch.equal(out, y)
    assert torch.equal(s.run(x=x.clone().requires_grad_())["y"], y)
    assert torch.equal(s.run(x=x.t().contiguous().t())["y"], y), "another order"
    try:
        s.run(x=x.double())
        raise SystemExit("a tensor of another type was taken")
    except graphc.InvalidError as e:
        assert "f32" in str(e) and "float64" in str(e), e
    n = x.numpy()
    overhead.check(lambda: s.run(x=x), lambda: np.add(n, n))
half = graphc.compile("model.onnx", precision="bf16")
assert torch.allclose(half.session().run(x=x)["y"], y, atol=0.1)
print("ok")
