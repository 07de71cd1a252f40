"""The graphc program that comes with the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any, Mapping

import numpy as np

from . import _native as n
from ._compile import Model, Size
from ._error import error

PROGRAM = os.environ.get("GRAPHC_PROGRAM") or os.path.join(n.HERE, "bin", "graphc")


@dataclass(frozen=True)
class Verification:
    """What `graphc verify` found."""

    ok: bool
    report: Mapping[str, Any]  #: its JSON: outputs, kernels, the first bad node

    def __bool__(self) -> bool:
        return self.ok


def verify(model: Model, inputs: Mapping[str, Any] | None = None, *, dims: Mapping[str, Size] | None = None,
           rtol: float | None = None, atol: float | None = None, device: str = "cpu", seed: int = 0) -> Verification:  # fmt: skip
    """Compiles a model (a file, its bytes, or an onnx.ModelProto) and compares its outputs, and every value that its kernels
    store, with the reference evaluator. Inputs that are not given are drawn from the seed. The bound follows type and depth unless rtol and atol say."""
    args = ["--json", "--device", device, "--seed", str(seed)]
    for name, size in (dims or {}).items():
        args += ["--dim", f"{name}={size}" if isinstance(size, int) else f"{name}={size[0]}..{size[1]}"]
    for option, value in (("--rtol", rtol), ("--atol", atol)):
        args += [option, repr(value)] if value is not None else []
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, x) in enumerate((inputs or {}).items()):
            np.save(f"{folder}/{i}.npy", np.asarray(x))
            args += ["--input", f"{name}={folder}/{i}.npy"]
        p = subprocess.run([PROGRAM, "verify", _file(model, folder), *args], capture_output=True, text=True)
    if p.returncode not in (0, 1):
        raise error(p.returncode, p.stderr.strip())
    return Verification(p.returncode == 0, json.loads(p.stdout))


def _file(model: Model, folder: str) -> str | os.PathLike[str]:
    if isinstance(model, (str, os.PathLike)):
        return model
    path = f"{folder}/model.onnx"
    with open(path, "wb") as f:
        f.write(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def main() -> int:
    """The command `graphc`."""
    os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])
