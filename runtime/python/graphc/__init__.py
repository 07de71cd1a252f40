"""graphc: ONNX graphs compiled into plans of fused kernels, and run.

    import graphc, numpy as np

    plan = graphc.compile("model.onnx", dims={"batch": (1, 64)})
    print(plan.inputs, plan.outputs)
    outputs = plan.run(x=np.zeros((8, 32), np.float32))     # {"y": array}

    with plan.session(threads=2) as session:                # one per thread
        outputs = session.run(x=torch.zeros(8, 32))         # torch tensors in, torch tensors out: no copies
        for kernel in session.profile(x=x): print(kernel.name, kernel.seconds)
"""

from __future__ import annotations

from . import _native
from ._compile import compile
from ._error import (
    Cancelled,
    Diagnostic,
    Error,
    FileError,
    InvalidError,
    OutOfMemory,
    RuntimeFailure,
    UnsupportedError,
    UsageError,
)
from ._plan import Explanation, Kernel, KernelTime, Plan, Session, Tensor
from ._tools import Verification, verify

load = Plan.load

__version__ = "{}.{}".format(_native.run.version() >> 16, _native.run.version() & 0xFFFF)
__all__ = [
    "Cancelled", "Diagnostic", "Error", "Explanation", "FileError", "InvalidError", "Kernel", "KernelTime", "OutOfMemory",
    "Plan", "RuntimeFailure", "Session", "Tensor", "UnsupportedError", "UsageError", "Verification", "compile", "load", "verify",
]  # fmt: skip
