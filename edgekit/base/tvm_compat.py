"""The quirks of the pinned TVM pair, each with its reason, in one place.

tests/integration/base/test_tvm_compat.py fails when a quirk is gone, so that its cure can go too.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import MissingToolError

if TYPE_CHECKING:
    import numpy as np

TVM_VERSION = "0.27.0.post1"

# apache-tvm asks for any newer apache-tvm-ffi, and pip picks 0.1.15: with it every MetaSchedule
# tuning context dies of a segmentation fault.
TVM_FFI_VERSION = "0.1.14.post1"

PINNED = (("apache-tvm", TVM_VERSION), ("apache-tvm-ffi", TVM_FFI_VERSION))

_UNUSED = ("torch", "cuda.bindings.driver", "tvm.runtime.disco")
"""What importing TVM loads if it is installed, and edgekit does not use.

tvm_ffi exchanges tensors with torch, whose import costs more than all of TVM, and takes streams of
CUDA's driver. Torch works with TVM's importer all the same where it is imported later. Disco is a
runtime for several hosts: its import ends with an error in C++, since the wheel does not load it.
"""


def installed_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def check_pair() -> None:
    """Refuse a TVM other than the pinned pair, since others may crash."""
    wrong = [
        f"{name} is {installed_version(name) or 'not installed'}, edgekit needs {wanted}"
        for name, wanted in PINNED
        if installed_version(name) != wanted
    ]
    if wrong:
        raise MissingToolError(
            "; ".join(wrong),
            hint="pip install " + " ".join(f"{name}=={wanted}" for name, wanted in PINNED),
        )


@lru_cache(maxsize=1)
def load_tvm() -> types.ModuleType:
    """Import TVM, compiler and all. Call this before the first `import tvm` of a process."""
    check_pair()
    # Where torch is loaded already, tvm_ffi would compile an extension to exchange tensors with it.
    os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")
    try:
        with _without(*_UNUSED), _without_collections():
            import_module("tvm_ffi")
            with _names_listed_once(), _without_ignored_errors(), _without_type_checks():
                return import_module("tvm")
    except (ImportError, OSError) as error:
        raise MissingToolError(
            f"TVM is installed but does not load: {error}",
            hint="edgekit doctor says what this machine lacks",
        ) from error


@contextmanager
def _without(*modules: str) -> Iterator[None]:
    """Keep what is imported meanwhile from importing these. One that is loaded already stays."""
    hidden = [name for name in modules if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep the garbage collector from searching what is imported, again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _names_listed_once() -> Iterator[None]:
    """List the names of TVM's functions again only if there are more of them.

    Each of TVM's 50 modules of bindings asks for all 2000 names, one call a name, and keeps those
    of its own prefix: two fifths of the import.
    """
    from tvm_ffi import registry

    original = registry.list_global_func_names
    known: list[str] = []

    def names() -> list[str]:
        count = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()(-1)
        if count != len(known):
            known[:] = original()
        return known

    registry.list_global_func_names = names
    try:
        yield
    finally:
        registry.list_global_func_names = original


@contextmanager
def _without_ignored_errors() -> Iterator[None]:
    """Raise in Python what TVM's import raises in C++ and then ignores, 112 times.

    At the first C++ error, the process reads the debug information of each library that it has
    loaded, for the trace in the error. That takes a fifth of a second if Python is among them.
    """
    from tvm_ffi import registry

    original = registry.get_global_func
    found: dict[str, Any] = {}
    names: set[str] = set()

    def is_known(name: str) -> bool:
        if not names:
            names.update(found["ir.ListOpNames"]())
        return name in names

    def operator(name: str) -> Any:
        if not is_known(name):
            raise ValueError(f"no operator {name}")
        return found["ir.GetOp"](name)

    def set_attribute(name: str, attribute: str, value: Any, level: int) -> None:
        # C++ has set one of these names already, and the second time is an error.
        is_name = attribute == "TScriptPrinterName" and is_known(name)
        if not is_name or found["ir.OpGetAttr"](operator(name), attribute) != value:
            found["ir.RegisterOpAttr"](name, attribute, value, level)

    checked = {"ir.GetOp": operator, "ir.RegisterOpAttr": set_attribute}

    def function(name: str, allow_missing: bool = False) -> Any:
        found[name] = original(name, allow_missing)
        return checked.get(name, found[name])

    registry.get_global_func = function
    try:
        yield
    finally:
        registry.get_global_func = original
        for name in checked.keys() & found.keys():
            setattr(sys.modules["tvm.ir._ffi_api"], name.removeprefix("ir."), found[name])


@contextmanager
def _without_type_checks() -> Iterator[None]:
    """Take away what compares each argument of a schedule's methods with its annotation.

    A build calls these methods hundreds of times, with lists of other objects: the comparisons took
    a third of the time of a small model. C++ checks its arguments by itself.
    """
    name = "tvm.s_tir.schedule._type_checker"
    unchecked = types.ModuleType(name)
    vars(unchecked)["type_checked"] = lambda method: method
    sys.modules[name] = unchecked
    try:
        yield
    finally:
        del sys.modules[name]


def load_tensor_intrinsics() -> types.ModuleType:
    """Import TVM's tensor intrinsics in seconds rather than in more than a minute.

    Every intrinsic is parsed from Python source, and for each the parser asks `inspect.stack`
    for the source lines of the whole call stack, which it never looks at. Those for GPUs are
    most of them, and no CPU schedule uses them.
    """
    load_tvm()
    with _cheap_inspect_stack(), _without_gpu_intrinsics():
        return import_module("tvm.s_tir.tensor_intrin")


@contextmanager
def _cheap_inspect_stack() -> Iterator[None]:
    original = inspect.stack

    def stack(context: int = 1) -> list[inspect.FrameInfo]:
        del context
        return inspect.getouterframes(sys._getframe(1), 0)

    inspect.stack = stack
    try:
        yield
    finally:
        inspect.stack = original


@contextmanager
def _without_gpu_intrinsics() -> Iterator[None]:
    names = [f"tvm.s_tir.tensor_intrin.{gpu}" for gpu in ("cuda", "rocm", "hexagon")]
    added = [name for name in names if name not in sys.modules]
    for name in added:
        sys.modules[name] = types.ModuleType(name)
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


_LEAST_SHARED_BYTES = 4096
_shared: ContextVar[dict[object, Any] | None] = ContextVar("_shared", default=None)


@contextmanager
def shared_constants() -> Iterator[None]:
    """Make equal constants one object in the block: a module that has a graph for each of several
    sizes holds its weights once."""
    before = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(before)


def as_constant(array: np.ndarray) -> Any:
    """Return a Relax constant of the array's own type: `relax.const` makes 32 bits of 64."""
    from tvm import relax

    shared, name = _shared.get(), str(array.dtype)
    if shared is None or array.nbytes < _LEAST_SHARED_BYTES:
        return relax.const(array, name)
    content = hashlib.blake2b(array.reshape(-1).view("uint8").data).digest()
    key = (name, array.shape, content)
    if key not in shared:
        shared[key] = relax.const(array, name)
    return shared[key]


def constant_array(expression: object) -> np.ndarray | None:
    """Return the value of a Relax constant; None for any other expression.

    0.27 moved `relax.Constant` with its `.data` to `tvm.ir.GenericConst` with a `.value`.
    """
    from tvm.ir import GenericConst

    if not isinstance(expression, GenericConst):
        return None
    array: np.ndarray = expression.value.numpy()
    return array
