"""The two libraries as ctypes sees them: structures and functions of graphc.h and graphc_compile.h, nothing else."""

from __future__ import annotations

import ctypes as c
import os
import threading
from typing import Any

MAX_RANK = 12
OK, CANCELLED, IO, RUNTIME = 0, 8, 7, 5


class DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device", c.c_int),
        ("device_id", c.c_int32),
        ("dtype", DType),
        ("rank", c.c_int32),
        ("shape", c.c_int64 * MAX_RANK),
    ]


class IoInfo(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("dtype", DType),
        ("dtype_name", c.c_char_p),
        ("rank", c.c_int32),
        ("dims", c.POINTER(c.c_char_p)),
        ("sizes", c.POINTER(c.c_int64)),
    ]


class EntryInfo(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("inputs", c.POINTER(c.c_uint32)),
        ("outputs", c.POINTER(c.c_uint32)),
        ("states", c.POINTER(c.c_uint32)),
        ("ninputs", c.c_uint32),
        ("noutputs", c.c_uint32),
        ("nstates", c.c_uint32),
    ]


class SymbolInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("lo", c.c_int64), ("hi", c.c_int64)]


class KernelInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_char_p), ("entry", c.c_char_p), ("nodes", c.c_char_p)]


class StepProfile(c.Structure):
    _fields_ = [
        ("kernel", c.c_char_p),
        ("kind", c.c_char_p),
        ("seconds", c.c_double),
        ("bytes", c.c_double),
        ("flops", c.c_double),
        ("threads", c.c_uint32),
        ("nodes", c.c_char_p),
    ]


class SessionOptions(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("device", c.c_int),
        ("device_id", c.c_int32),
        ("threads", c.c_uint32),
        ("cuda_stream", c.c_void_p),
        ("isa_limit", c.c_uint32),
        ("weights_dir", c.c_char_p),
        ("check", c.c_uint32),
        ("lean", c.c_uint32),
    ]


class Dim(c.Structure):
    _fields_ = [("name", c.c_char_p), ("lo", c.c_int64), ("hi", c.c_int64)]


class State(c.Structure):
    _fields_ = [("input", c.c_char_p), ("output", c.c_char_p)]


Progress = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_char_p, c.c_uint32, c.c_uint32)
External = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.POINTER(c.c_void_p), c.POINTER(c.c_size_t))


class CompileOptions(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("target", c.c_char_p),
        ("precision", c.c_char_p),
        ("dims", c.POINTER(Dim)),
        ("ndims", c.c_uint32),
        ("dump_dir", c.c_char_p),
        ("cache_dir", c.c_char_p),
        ("threads", c.c_uint32),
        ("embed", c.c_bool),
        ("weights_dir", c.c_char_p),
        ("training", c.c_void_p),
        ("states", c.POINTER(State)),
        ("nstates", c.c_uint32),
        ("progress", Progress),
        ("progress_ctx", c.c_void_p),
        ("external", External),
        ("external_ctx", c.c_void_p),
        ("weights_root", c.c_char_p),
        ("allow_links", c.c_bool),
        ("adapters", c.c_uint32),
        ("lora", c.c_char_p),
        ("accuracy_level", c.c_uint32),
    ]


class Diagnostic(c.Structure):
    _fields_ = [
        ("severity", c.c_int),
        ("number", c.c_uint32),
        ("status", c.c_int),
        ("place", c.c_char_p),
        ("text", c.c_char_p),
        ("hint", c.c_char_p),
    ]


P, U, S, T = c.c_void_p, c.c_uint32, c.c_char_p, c.POINTER(Tensor)
_RUN: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "version": (U, ()),
    "status_name": (S, (c.c_int,)),
    "plan_load": (c.c_int, (S, c.POINTER(P), P, c.c_size_t)),
    "plan_load_memory": (c.c_int, (S, c.c_size_t, S, c.POINTER(P), P, c.c_size_t)),
    "plan_destroy": (None, (P,)),
    "plan_inputs": (U, (P,)),
    "plan_outputs": (U, (P,)),
    "plan_states": (U, (P,)),
    "plan_entries": (U, (P,)),
    "plan_symbols": (U, (P,)),
    "plan_input": (IoInfo, (P, U)),
    "plan_output": (IoInfo, (P, U)),
    "plan_state": (IoInfo, (P, U)),
    "plan_entry": (EntryInfo, (P, U)),
    "plan_symbol": (SymbolInfo, (P, U)),
    "plan_targets": (U, (P,)),
    "plan_target": (S, (P, U)),
    "plan_refusals": (S, (P, U)),
    "plan_uncovered": (S, (P, U)),
    "plan_kernels": (U, (P, U)),
    "plan_kernel": (KernelInfo, (P, U, U)),
    "session_create": (c.c_int, (P, c.POINTER(SessionOptions), c.POINTER(P), P, c.c_size_t)),
    "session_destroy": (None, (P,)),
    "session_threads": (U, (P,)),
    "session_code": (S, (P,)),
    "run_entry": (c.c_int, (P, U)),
    "sync": (c.c_int, (P,)),
    "output_host": (c.c_int, (P, U, T)),
    "state_read": (c.c_int, (P, U, T)),
    "state_write": (c.c_int, (P, U, T)),
    "state_shape": (c.c_int, (P, U, T)),
    "prepared_save": (c.c_int, (P, S)),
    "states_save": (c.c_int, (P, S)),
    "states_load": (c.c_int, (P, S)),
    "session_profile": (None, (P, c.c_bool)),
    "profile_steps": (U, (P,)),
    "profile_step": (StepProfile, (P, U)),
}
# Short and without waiting: called with the interpreter's lock held, which costs less than letting it go.
_SHORT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "session_error": (S, (P,)),
    "bind_input": (c.c_int, (P, U, T)),
    "bind_output": (c.c_int, (P, U, T)),
    "output_shape": (c.c_int, (P, U, U, T)),
}
_COMPILE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "compile": (c.c_int, (S, c.POINTER(CompileOptions), c.POINTER(P))),
    "compile_memory": (c.c_int, (S, c.c_size_t, c.POINTER(CompileOptions), c.POINTER(P))),
    "compiled_destroy": (None, (P,)),
    "compiled_plan": (P, (P, c.POINTER(c.c_size_t))),
    "compiled_messages": (U, (P,)),
    "compiled_message": (S, (P, U)),
    "compiled_diagnostic": (Diagnostic, (P, U)),
}

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = os.environ.get("GRAPHC_LIBRARIES") or os.path.join(HERE, "lib")


class Library:
    """Functions of a library as attributes, without their prefix."""

    def __init__(self, name: str, table: dict[str, tuple[Any, tuple[Any, ...]]], short: dict[str, tuple[Any, tuple[Any, ...]]]):
        path = os.path.join(LIBRARIES, name)
        for kind, functions in ((c.CDLL, table), (c.PyDLL, short)):
            library = kind(path) if functions else None
            for function, (result, arguments) in functions.items():
                f = getattr(library, f"graphc_{function}")
                f.restype, f.argtypes = result, arguments
                setattr(self, function, f)

    def __getattr__(self, name: str) -> Any:  # for type checkers: set above
        raise AttributeError(name)


run = Library("libgraphc.so.0", _RUN, _SHORT)
_compiler: Library | None = None
_lock = threading.Lock()


def compiler() -> Library:
    """The compiler's library, which needs LLVM: loaded when it is first asked for."""
    global _compiler
    with _lock:
        if _compiler is None:
            _compiler = Library("libgraphc_compile.so.0", _COMPILE, {})
        return _compiler
