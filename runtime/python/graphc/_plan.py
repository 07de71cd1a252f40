"""Plans and sessions: graphc.h."""

from __future__ import annotations

import ctypes as c
import os
import threading
from dataclasses import dataclass
from typing import Any, Iterator, Mapping

import numpy as np

from . import _array
from . import _native as n
from ._array import Bound, Slot
from ._error import Diagnostic, UsageError, error

run = n.run


@dataclass(frozen=True)
class Tensor:
    """An input, output or state of a plan."""

    name: str
    dtype: str  #: "f32", "bf16", "i64" ...
    shape: tuple[int | str, ...]  #: numbers, and texts of what is open: "batch", "past + seq"


@dataclass(frozen=True)
class Kernel:
    """One launch of a kernel."""

    name: str  #: "tem_5_matmul_add"
    kind: str  #: "poi", "red", "per" or "tem"
    entry: str  #: which entry runs it; "" once, at load
    nodes: tuple[str, ...]  #: the ONNX nodes that it computes
    views: tuple[str, ...]  #: those that it only looks through


@dataclass(frozen=True)
class Explanation:
    """What became of the model's nodes on one target."""

    target: str
    kernels: tuple[Kernel, ...]
    refusals: tuple[str, ...]  #: what was not fused with what, and why
    uncovered: tuple[tuple[str, str], ...]  #: nodes that are in no kernel, and why

    def of(self, node: str) -> tuple[Kernel, ...]:
        """The kernels that hold the node of that name."""
        return tuple(k for k in self.kernels if any(f'"{node}"' in x for x in k.nodes + k.views))


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a profiled run."""

    name: str
    kind: str
    seconds: float
    bytes: float  #: the least that it has to move
    flops: float  #: and compute, for these shapes
    threads: int
    nodes: tuple[str, ...]


_VIEW = " (a view: only where it is read)"


def _text(b: bytes | None) -> str:
    return b.decode(errors="replace") if b else ""


def _lines(b: bytes | None) -> tuple[str, ...]:
    return tuple(_text(b).splitlines())


def _number(items: Mapping[str, int], name: str, what: str) -> int:
    i = items.get(name)
    if i is None:
        raise UsageError(f'the plan has no {what} "{name}"; it has ' + ", ".join(f'"{k}"' for k in items))
    return i


class _Loaded:
    """The library's plan: goes with the last of the Plan and its sessions, in whatever order these are collected."""

    __slots__ = ("handle", "_users", "_lock")

    def __init__(self) -> None:
        self.handle = c.c_void_p()
        self._users = 1
        self._lock = threading.RLock()

    def hold(self) -> _Loaded:
        with self._lock:
            self._users += 1
        return self

    def drop(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self.handle:
                run.plan_destroy(self.handle)


class Plan:
    """A compiled model: immutable, may be shared by threads. Plans hold machine code: load those that you trust."""

    def __init__(self, data: bytes, base_path: str | os.PathLike[str] | None = None):
        """A plan's bytes. base_path: where it would lie as a file, if its weights are in others."""
        self._loaded = _Loaded()
        if not isinstance(data, bytes):
            raise UsageError(f"a plan's bytes are bytes, not {type(data).__name__}; Plan.load takes a path")
        self.diagnostics: tuple[Diagnostic, ...] = ()  #: what the compiler said
        self._data: bytes | None = data
        base = os.fsencode(base_path) if base_path is not None else None
        why = c.create_string_buffer(512)
        self._open(run.plan_load_memory(data, len(data), base, c.byref(self._loaded.handle), why, len(why)), why)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """From a file, which stays mapped."""
        self = cls.__new__(cls)
        self._loaded, self._data, self.diagnostics = _Loaded(), None, ()
        why = c.create_string_buffer(512)
        self._open(run.plan_load(os.fsencode(path), c.byref(self._loaded.handle), why, len(why)), why)
        return self

    def _open(self, status: int, why: Any) -> None:
        if status:
            raise error(status, _text(why.value))
        h = self._handle = self._loaded.handle
        self._inputs = [Slot(run.plan_input(h, i)) for i in range(run.plan_inputs(h))]
        self._outputs = [Slot(run.plan_output(h, i)) for i in range(run.plan_outputs(h))]
        self._states = [Slot(run.plan_state(h, i)) for i in range(run.plan_states(h))]
        self._entries = [run.plan_entry(h, i) for i in range(run.plan_entries(h))]
        self._gives = [[e.outputs[k] for k in range(e.noutputs)] for e in self._entries]
        self._input_number = {s.name: i for i, s in enumerate(self._inputs)}
        self._output_number = {s.name: i for i, s in enumerate(self._outputs)}
        self._state_number = {s.name: i for i, s in enumerate(self._states)}
        self._entry_number = {_text(e.name): i for i, e in enumerate(self._entries)}
        self._own = threading.local()

    def __del__(self) -> None:
        if hasattr(self, "_loaded"):
            self._loaded.drop()

    def __repr__(self) -> str:
        sides = [", ".join(f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in side) for side in (self.inputs, self.outputs)]
        return f"<graphc.Plan ({sides[0]}) -> ({sides[1]}) for {', '.join(self.targets)}>"

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(Tensor(s.name, s.dtype_name, s.dims) for s in self._inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(Tensor(s.name, s.dtype_name, s.dims) for s in self._outputs)

    @property
    def states(self) -> tuple[Tensor, ...]:
        return tuple(Tensor(s.name, s.dtype_name, s.dims) for s in self._states)

    @property
    def entries(self) -> tuple[str, ...]:
        """The ways to run it; the first is what runs by default."""
        return tuple(self._entry_number)

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """Open sizes and the ranges that the plan is for."""
        all_ = [run.plan_symbol(self._handle, i) for i in range(run.plan_symbols(self._handle))]
        return {_text(s.name): (s.lo, s.hi) for s in all_}

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(_text(run.plan_target(self._handle, i)) for i in range(run.plan_targets(self._handle)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a compiled plan's bytes. Weights that were not embedded are looked for from this place on."""
        if self._data is None:
            raise UsageError("the plan was loaded from a file: copy that")
        part = f"{os.fspath(path)}.{os.getpid()}"
        with open(part, "wb") as f:
            f.write(self._data)
        os.replace(part, path)

    def session(self, device: str = "cpu", *, threads: int = 0, stream: int | None = None, isa: int = 0,
                weights_dir: str | os.PathLike[str] | None = None, check: bool = False, lean: bool = False) -> Session:  # fmt: skip
        """A session on "cpu" or "cuda:0". threads: 0 takes the cores that the process may use. stream: a CUstream."""
        return Session(self, device, threads=threads, stream=stream, isa=isa, weights_dir=weights_dir, check=check,
                       lean=lean)  # fmt: skip

    def run(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Any]:
        """Runs it on the CPU in a session of the calling thread's own; as Session.run."""
        session = getattr(self._own, "session", None)
        if session is None:
            session = self._own.session = Session(self)
        out: dict[str, Any] = session.run(inputs, **named)
        return out

    def explain(self, target: str | None = None) -> Explanation:
        """What became of the model's nodes, on that target or the first."""
        number = self.targets.index(target) if target in self.targets else 0 if target is None else None
        if number is None:
            raise UsageError(f'the plan has no target "{target}"; it has {", ".join(self.targets)}')
        h = self._handle
        kernels = []
        for i in range(run.plan_kernels(h, number)):
            k = run.plan_kernel(h, number, i)
            nodes = _lines(k.nodes)
            views = tuple(x.removesuffix(_VIEW) for x in nodes if x.endswith(_VIEW))
            computed = tuple(x for x in nodes if not x.endswith(_VIEW))
            kernels.append(Kernel(_text(k.name), _text(k.kind), _text(k.entry), computed, views))
        apart = [line.rpartition(": ") for line in _lines(run.plan_uncovered(h, number))]
        return Explanation(self.targets[number], tuple(kernels), _lines(run.plan_refusals(h, number)),
                           tuple((node, why) for node, _, why in apart))  # fmt: skip


class Session:
    """One thread of control through a plan. Calls from several threads take turns; for speed make a session each.
    check: a fault on a GPU names the kernel, and positions beyond a table are an error; slow.
    lean: weights that are prepared for a CPU are there only while a run reads them, for sessions that run once or rarely."""

    def __init__(self, plan: Plan, device: str = "cpu", *, threads: int = 0, stream: int | None = None, isa: int = 0,
                 weights_dir: str | os.PathLike[str] | None = None, check: bool = False, lean: bool = False):  # fmt: skip
        kind, _, number = device.partition(":")
        if kind not in ("cpu", "cuda") or not (number or "0").isdigit():
            raise UsageError(f'"{device}" is neither "cpu" nor "cuda:N"')
        o = n.SessionOptions(size=c.sizeof(n.SessionOptions), device=1 if kind == "cpu" else 2, device_id=int(number or 0),
                             threads=threads, cuda_stream=stream, isa_limit=isa,
                             weights_dir=os.fsencode(weights_dir) if weights_dir is not None else None,
                             check=check, lean=lean)  # fmt: skip
        self._handle = c.c_void_p()
        self._inputs_, self._outputs_, self._states_ = plan._inputs, plan._outputs, plan._states
        self._numbers = plan._input_number, plan._output_number, plan._state_number, plan._entry_number
        self._gives = plan._gives
        self._waits = kind == "cuda" and stream is None
        why = c.create_string_buffer(512)
        status = run.session_create(plan._handle, c.byref(o), c.byref(self._handle), why, len(why))
        if status:
            raise error(status, _text(why.value))
        self._loaded = plan._loaded.hold()
        self._in = [Bound(s.dtype, s.rank) for s in plan._inputs]
        self._out = [Bound(s.dtype, s.rank) for s in plan._outputs]
        self._tensor = n.Tensor()
        self._ref = c.byref(self._tensor)
        self._lock = threading.RLock()

    def close(self) -> None:
        """Frees its memory now; also what `with` does."""
        with self._lock:
            handle, self._handle = self._handle, c.c_void_p()
            if handle:
                run.session_destroy(handle)
                self._loaded.drop()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    @property
    def threads(self) -> int:
        return int(run.session_threads(self._live()))

    @property
    def code(self) -> str:
        """Which code runs: "x86-64-v4", "cubin" ..."""
        return _text(run.session_code(self._live()))

    def _live(self) -> c.c_void_p:
        if not self._handle:
            raise UsageError("the session is closed")
        return self._handle

    def _check(self, status: int) -> None:
        if status:
            raise error(status, _text(run.session_error(self._handle)))

    def _bind_inputs(self, given: Mapping[str, Any]) -> Any:
        """Returns the first that is torch's."""
        like = None
        for name, x in given.items():
            i = _number(self._numbers[0], name, "input")
            b = self._in[i]
            before = b.owner
            _array.take(b, self._inputs_[i], x)
            status = run.bind_input(self._handle, i, b.ref)
            if status:
                b.owner = before  # which stays bound
                self._check(status)
            if like is None and _array.framework_of(x):
                like = x
        return like

    def _bind_outputs(self, entry: int, like: Any, out: Mapping[str, Any]) -> dict[str, Any]:
        """New arrays for the entry's outputs, or those in `out`; None where only the run finds out a size."""
        torch, device = (_array.framework_of(like), like.device) if like is not None else (None, None)
        got = {}
        for i in self._gives[entry]:
            slot, b = self._outputs_[i], self._out[i]
            self._check(run.output_shape(self._handle, entry, i, self._ref))
            shape = tuple(self._tensor.shape[: slot.rank])
            x = out.get(slot.name)
            if x is not None:
                if isinstance(x, np.ndarray) and not x.flags.writeable:
                    raise UsageError(f'output "{slot.name}": the array is not writable')
                _array.take(b, slot, x)
                if (b.owner[1] if isinstance(b.owner, tuple) else b.owner) is not x:
                    raise UsageError(f'output "{slot.name}": the array has gaps or another order')
            elif -1 not in shape:
                x = _array.make(b, slot, shape, torch, device)
            self._check(run.bind_output(self._handle, i, b.ref if x is not None else None))
            got[slot.name] = x
        return got

    def _copy_out(self, name: str) -> np.ndarray[Any, Any]:
        i = self._numbers[1][name]
        self._check(run.output_host(self._handle, i, self._ref))
        t, slot = self._tensor, self._outputs_[i]
        x = np.empty(tuple(t.shape[: slot.rank]), slot.need_numpy())
        if x.nbytes:
            c.memmove(x.ctypes.data, t.data, x.nbytes)
        return x

    def run(self, inputs: Mapping[str, Any] | None = None, /, *, entry: str | None = None,
            out: Mapping[str, Any] | None = None, **named: Any) -> dict[str, Any]:  # fmt: skip
        """Runs once; outputs by name.

        Inputs are given by name, as keywords or in a mapping: NumPy arrays, tensors of torch or of any library that
        has DLPack, or what NumPy makes an array of. Dense ones of the right type are read where they lie. One that is
        not given stays as it was in the run before. Outputs are new NumPy arrays, or torch tensors where an input was
        one, written by the kernels themselves; `out` gives arrays to be written instead.
        """
        with self._lock:
            self._live()
            number = 0 if entry is None else _number(self._numbers[3], entry, "entry")
            for name in out or ():
                _number(self._numbers[1], name, "output")
            like = self._bind_inputs({**inputs, **named} if inputs else named)
            got = self._bind_outputs(number, like, out or {})
            self._check(run.run_entry(self._handle, number))
            if self._waits:
                self._check(run.sync(self._handle))
            for name, x in got.items():
                if x is None:
                    x = self._copy_out(name)
                    got[name] = _array.framework_of(like).from_numpy(x) if like is not None else x
            return got

    def profile(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> list[KernelTime]:
        """Runs once and says what each kernel took."""
        with self._lock:
            run.session_profile(self._live(), True)
            try:
                self.run(inputs, **named)
                steps = [run.profile_step(self._handle, i) for i in range(run.profile_steps(self._handle))]
            finally:
                run.session_profile(self._handle, False)
        return [KernelTime(_text(s.kernel), _text(s.kind), s.seconds, s.bytes, s.flops, s.threads, _lines(s.nodes)) for s in steps]

    def state(self, name: str) -> np.ndarray[Any, Any]:
        """A copy of what the state holds."""
        with self._lock:
            i = _number(self._numbers[2], name, "state")
            slot = self._states_[i]
            self._check(run.state_shape(self._live(), i, self._ref))
            x = np.empty(tuple(self._tensor.shape[: slot.rank]), slot.need_numpy())
            b = Bound(slot.dtype, slot.rank)
            b.set(x.ctypes.data, x.shape, _array.CPU, 0, x)
            self._check(run.state_read(self._handle, i, b.ref))
            return x

    def set_state(self, name: str, x: Any) -> None:
        """The state holds a copy of x from now on."""
        with self._lock:
            i = _number(self._numbers[2], name, "state")
            b = Bound(self._states_[i].dtype, self._states_[i].rank)
            _array.take(b, self._states_[i], x)
            self._check(run.state_write(self._live(), i, b.ref))

    def save_states(self, path: str | os.PathLike[str]) -> None:
        """All states, as a safetensors file."""
        with self._lock:
            self._check(run.states_save(self._live(), os.fsencode(path)))

    def load_states(self, path: str | os.PathLike[str]) -> None:
        with self._lock:
            self._check(run.states_load(self._live(), os.fsencode(path)))

    def save_prepared(self, path: str | os.PathLike[str]) -> None:
        """The plan with nothing left to prepare on the CPU, and its weights beside it in PATH.prepared."""
        with self._lock:
            self._check(run.prepared_save(self._live(), os.fsencode(path)))

    def states(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Names and copies of all states."""
        for name in self._numbers[2]:
            yield name, self.state(name)
