"""What goes wrong, as exceptions: one class per status of graphc_status.h."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence


@dataclass(frozen=True)
class Diagnostic:
    """A message of the compiler."""

    severity: str  #: "note", "warning" or "error"
    code: str  #: "G0412", the same in every release
    place: str  #: where in the model: node 17 "val_12" Conv
    text: str  #: what is wrong
    hint: str  #: what to do about it, or ""

    def __str__(self) -> str:
        parts = [f"{self.severity}[{self.code}]", self.place, self.text]
        return ": ".join(p for p in parts if p) + (f"\n  hint: {self.hint}" if self.hint else "")


class Error(Exception):
    """What every function here raises; `status` is graphc's number for it."""

    status = 5

    def __init__(self, text: str, diagnostics: Sequence[Diagnostic] = ()):
        super().__init__(text)
        self.diagnostics = tuple(diagnostics)


class UsageError(Error, ValueError):
    """The call is wrong."""

    status = 2


class InvalidError(Error, ValueError):
    """A file or a tensor is malformed, or does not fit."""

    status = 3


class UnsupportedError(Error):
    """Well-formed, but not something graphc can do."""

    status = 4


class RuntimeFailure(Error, RuntimeError):
    """The device or its driver."""

    status = 5


class OutOfMemory(Error, MemoryError):
    status = 6


class FileError(Error, OSError):
    """A file cannot be read or written."""

    status = 7


class Cancelled(Error):
    """Compiling was stopped by its progress function."""

    status = 8


_CLASSES: dict[int, type[Error]] = {
    c.status: c for c in (UsageError, InvalidError, UnsupportedError, RuntimeFailure, OutOfMemory, FileError, Cancelled)
}


def error(status: int, text: str, diagnostics: Sequence[Diagnostic] = ()) -> Error:
    return _CLASSES.get(status, Error)(text, diagnostics)
