"""Arrays of others as graphc_tensor, without copies: NumPy's directly, every other library's through DLPack."""

from __future__ import annotations

import ctypes as c
import importlib
import sys
from typing import Any

import numpy as np

from . import _native as n
from ._error import InvalidError, UsageError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13

#: graphc's types that NumPy has. The others (bf16, float8 ...) come from ml_dtypes, if that is there.
_PLAIN = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bool": np.bool_,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
}  # fmt: skip
_EXTRA = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """The NumPy type of a graphc type, or None."""
    if name in _PLAIN:
        return np.dtype(_PLAIN[name])
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), _EXTRA[name])) if name in _EXTRA else None
    except ImportError:
        return None


class _DLTensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device", c.c_int),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("dtype", n.DType),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


_capsule_pointer = c.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c.c_void_p, (c.py_object, c.c_char_p)


def _dense(t: _DLTensor) -> bool:
    """Row-major without gaps?"""
    step = 1
    for i in range(t.ndim - 1, -1, -1):
        if t.shape[i] != 1 and t.strides[i] != step:
            return False
        step *= t.shape[i]
    return True


class Bound:
    """A graphc_tensor and what keeps its memory alive."""

    __slots__ = ("tensor", "ref", "owner", "shape")

    def __init__(self, dtype: n.DType, rank: int):
        self.tensor = n.Tensor(device=CPU, dtype=dtype, rank=rank)
        self.ref = c.byref(self.tensor)
        self.owner: Any = None  #: holds the memory
        self.shape: tuple[int, ...] | None = None

    def set(self, data: int, shape: tuple[int, ...], device: int, device_id: int, owner: Any) -> None:
        t = self.tensor
        t.data = data
        if shape != self.shape:
            t.shape[: len(shape)] = shape
            self.shape = shape
        t.device, t.device_id = device, device_id
        self.owner = owner


class Slot:
    """An input, output or state: what it has to be."""

    __slots__ = ("name", "dtype_name", "dtype", "rank", "dims", "sizes", "numpy")

    def __init__(self, info: n.IoInfo):
        self.name: str = info.name.decode()
        self.dtype_name: str = info.dtype_name.decode()
        self.dtype = info.dtype
        self.rank: int = info.rank
        self.sizes: tuple[int, ...] = tuple(info.sizes[: info.rank])
        self.dims: tuple[int | str, ...] = tuple(
            size if size >= 0 else info.dims[i].decode() for i, size in enumerate(self.sizes)
        )
        self.numpy = numpy_dtype(self.dtype_name)

    def need_numpy(self) -> np.dtype[Any]:
        if self.numpy is None:
            raise UsageError(f'"{self.name}" is {self.dtype_name}, which NumPy lacks: install ml_dtypes, or use torch')
        return self.numpy


def take(b: Bound, slot: Slot, x: Any) -> None:
    """Makes the input b refer to the array x."""
    if not isinstance(x, np.ndarray):
        if hasattr(x, "__dlpack__"):
            return _take_dlpack(b, slot, x)
        x = np.asarray(x, slot.need_numpy())
    if x.dtype != slot.numpy:
        raise InvalidError(f'input "{slot.name}" is {slot.dtype_name}, the array is {x.dtype}')
    if x.ndim != slot.rank:
        raise InvalidError(f'input "{slot.name}" has rank {slot.rank}, the array has shape {x.shape}')
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    b.set(x.ctypes.data, x.shape, CPU, 0, x)


def _take_dlpack(b: Bound, slot: Slot, x: Any) -> None:
    if getattr(x, "requires_grad", False):
        x = x.detach()
    capsule = x.__dlpack__()
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    d, want = t.dtype, slot.dtype
    if (d.code, d.bits, d.lanes) != (want.code, want.bits, want.lanes):
        raise InvalidError(f'input "{slot.name}" is {slot.dtype_name}, the tensor is {getattr(x, "dtype", "another")}')
    if t.ndim != slot.rank:
        raise InvalidError(f'input "{slot.name}" has rank {slot.rank}, the tensor has {t.ndim}')
    if t.strides and not _dense(t):
        if not hasattr(x, "contiguous"):
            raise UsageError(f'input "{slot.name}": the tensor has gaps or another order; make it dense and row-major')
        return _take_dlpack(b, slot, x.contiguous())
    device = {CUDA_HOST: CPU, CUDA_MANAGED: CUDA}.get(t.device, t.device)
    if device not in (CPU, CUDA):
        raise UsageError(f'input "{slot.name}" lies on DLPack device {t.device}; graphc knows the CPU and CUDA')
    data = (t.data or 0) + t.byte_offset
    b.set(data, tuple(t.shape[: t.ndim]), device, t.device_id if device == CUDA else 0, (capsule, x))


def framework_of(x: Any) -> Any:
    """torch, where the array is one of its tensors: outputs are its tensors then, too."""
    return sys.modules.get("torch") if type(x).__module__.partition(".")[0] == "torch" else None


_TORCH = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "bool", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip


def make(b: Bound, slot: Slot, shape: tuple[int, ...], torch: Any, device: Any) -> Any:
    """A new array that the output b refers to."""
    if torch is None:
        x: Any = np.empty(shape, slot.need_numpy())
        b.set(x.ctypes.data, shape, CPU, 0, x)
        return x
    x = torch.empty(shape, dtype=getattr(torch, _TORCH[slot.dtype_name]), device=device)
    on_cpu = x.device.type == "cpu"
    b.set(x.data_ptr(), shape, CPU if on_cpu else CUDA, 0 if on_cpu else x.device.index, x)
    return x
