"""Models become plans: graphc_compile.h."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any, Callable, Mapping, Protocol, Union

from . import _native as n
from ._error import Diagnostic, error
from ._plan import Plan


class SupportsSerialize(Protocol):
    """An onnx.ModelProto."""

    def SerializeToString(self) -> bytes: ...


Model = Union[str, "os.PathLike[str]", bytes, SupportsSerialize]
#: A size that the plan is for: a number, or the least and the most.
Size = Union[int, "tuple[int, int]"]
_SEVERITY = ("note", "warning", "error")


def _text(x: str | os.PathLike[str] | None) -> bytes | None:
    return None if x is None else os.fsencode(x)


def _diagnostics(lib: n.Library, handle: c.c_void_p) -> tuple[Diagnostic, ...]:
    got = []
    for i in range(lib.compiled_messages(handle)):
        d = lib.compiled_diagnostic(handle, i)
        got.append(Diagnostic(_SEVERITY[d.severity], f"G{d.number:04d}", *(t.decode(errors="replace") for t in (d.place, d.text, d.hint))))
    return tuple(got)


class _Callbacks:
    """Python functions behind the C ones. What they raise stops the compile, and is raised again after it."""

    def __init__(self, progress: Callable[[str, int, int], bool | None] | None,
                 external: Callable[[str], bytes] | Mapping[str, bytes] | None):  # fmt: skip
        self.raised: BaseException | None = None
        self.kept: dict[str, c.Array[c.c_char] | bytes] = {}
        self._progress = progress
        self._external = external.__getitem__ if isinstance(external, Mapping) else external
        self.progress = n.Progress(self.on_progress) if progress else n.Progress()
        self.external = n.External(self.on_external) if external is not None else n.External()

    def on_progress(self, _: Any, stage: bytes, done: int, of: int) -> bool:
        try:
            return self._progress is not None and self._progress(stage.decode(), done, of) is not False
        except BaseException as e:
            self.raised = e
            return False

    def on_external(self, _: Any, location: bytes, data: Any, size: Any) -> int:
        try:
            name = location.decode()
            if name not in self.kept:
                assert self._external
                self.kept[name] = bytes(self._external(name))
            data[0] = c.cast(c.c_char_p(self.kept[name]), c.c_void_p).value  # type: ignore[arg-type]
            size[0] = len(self.kept[name])
            return n.OK
        except BaseException as e:
            self.raised = e
            return n.IO


def _options(lib_options: Mapping[str, Any], dims: Mapping[str, Size] | None, states: Mapping[str, str] | None) -> n.CompileOptions:
    sizes = [(k, v, v) if isinstance(v, int) else (k, *v) for k, v in (dims or {}).items()]
    ties = list((states or {}).items())
    o = n.CompileOptions(size=c.sizeof(n.CompileOptions), ndims=len(sizes), nstates=len(ties), **lib_options)
    o.dims = (n.Dim * len(sizes))(*(n.Dim(k.encode(), lo, hi) for k, lo, hi in sizes))
    o.states = (n.State * len(ties))(*(n.State(a.encode(), b.encode()) for a, b in ties))
    return o


def compile(
    model: Model,
    *,
    target: str = "cpu",
    precision: str = "f32",
    dims: Mapping[str, Size] | None = None,
    states: Mapping[str, str] | None = None,
    threads: int = 0,
    embed: bool | None = None,
    external: Callable[[str], bytes] | Mapping[str, bytes] | None = None,
    progress: Callable[[str, int, int], bool | None] | None = None,
    cache: str | os.PathLike[str] | None = None,
    dump_ir: str | os.PathLike[str] | None = None,
    weights_root: str | os.PathLike[str] | None = None,
    allow_links: bool = False,
    accuracy_level: int = 0,
) -> Plan:
    """Compiles an ONNX model: a file, its bytes, or an onnx.ModelProto.

    target: "cpu", "sm_90a" or both with a comma. precision: "f32", "tf32", "bf16", "f16". dims: sizes that the plan is
    for, {"batch": 1, "seq": (1, 512)}. states: {input: output} that become one state. embed: copies external weights into
    the plan; by default those of a model that is not a file. external: gives the bytes of external data by name.
    progress(stage, done, of): False stops. cache: a folder that keeps compiled kernels. accuracy_level: 4 lets activations
    be rounded to 8 bits beside weights of few bits, whatever the model says, 1 never; 0 does as it says.

    Raises graphc.Error, with the compiler's diagnostics; the plan has those of a success.
    """
    lib = n.compiler()
    calls = _Callbacks(progress, external)
    is_file = isinstance(model, (str, os.PathLike))
    embeds = bool(embed) if embed is not None else not is_file or external is not None
    o = _options({"target": target.encode(), "precision": precision.encode(), "dump_dir": _text(dump_ir),
                  "cache_dir": _text(cache), "threads": threads, "embed": embeds, "progress": calls.progress,
                  "external": calls.external, "weights_root": _text(weights_root), "allow_links": allow_links,
                  "accuracy_level": accuracy_level},
                 dims, states)  # fmt: skip
    handle = c.c_void_p()
    if isinstance(model, (str, os.PathLike)):
        status = lib.compile(os.fsencode(model), c.byref(o), c.byref(handle))
    else:
        data = model if isinstance(model, bytes) else model.SerializeToString()
        status = lib.compile_memory(data, len(data), c.byref(o), c.byref(handle))
    try:
        said = _diagnostics(lib, handle) if handle else ()
        if calls.raised is not None:
            raise calls.raised
        if status:
            raise error(status, "\n".join(map(str, said)) or n.run.status_name(status).decode(), said)
        size = c.c_size_t()
        plan = Plan(c.string_at(lib.compiled_plan(handle, c.byref(size)), size.value), os.fspath(model) if is_file else None)  # type: ignore[arg-type]
        plan.diagnostics = said
        return plan
    finally:
        lib.compiled_destroy(handle)
