"""jax arrays in by DLPack without a copy, results back: run by package.py in a folder with model.onnx."""
import jax
import jax.numpy as jnp
import numpy as np

import graphc

plan = graphc.compile("model.onnx")
x = jnp.asarray(np.random.default_rng(0).random((4, 32), np.float32))
want = plan.run(x=np.asarray(x))["y"]
with plan.session(threads=1) as s:
    y = s.run(x=x)["y"]
    assert np.array_equal(np.asarray(y), want)
    assert s._in[0].tensor.data == x.unsafe_buffer_pointer(), "the input was copied"
    back = jnp.from_dlpack(y)
    assert isinstance(back, jax.Array) and np.array_equal(np.asarray(back), want)
    assert np.array_equal(np.asarray(s.run(x=jax.device_put(x, jax.devices("cpu")[0]))["y"]), want)
    try:
        s.run(x=x.astype(jnp.int32))
        raise SystemExit("an array of another type was taken")
    except graphc.InvalidError as e:
        assert "f32" in str(e) and "int32" in str(e), e
half = graphc.compile("model.onnx", precision="bf16")
assert np.allclose(np.asarray(half.session().run(x=x)["y"]), want, atol=0.1)
print("ok")
