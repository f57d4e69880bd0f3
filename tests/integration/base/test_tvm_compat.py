"""Each quirk of the pinned TVM that edgekit cures is still there: a failure here is good news,
and says which cure in edgekit/base/tvm_compat.py can go."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pytest
import tomli
from packaging.requirements import Requirement
from support.building import command_line, environment, write_model
from support.needs import needs
from support.source import ROOT

from edgekit.base import tvm_compat
from edgekit.base.errors import MissingToolError


def in_fresh_python(script: str) -> str:
    """What the script prints, in a process that has imported nothing yet."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_pins_in_the_package_are_those_the_code_asks_for() -> None:
    metadata = tomli.loads((ROOT / "pyproject.toml").read_text())
    pinned = [line for line in metadata["project"]["dependencies"] if "tvm" in line]

    assert pinned == [f"{name}=={wanted}" for name, wanted in tvm_compat.PINNED]


def test_tvm_still_admits_the_ffi_that_crashes_it() -> None:
    wanted = [Requirement(line) for line in requires("apache-tvm") or ()]
    (ffi,) = [requirement for requirement in wanted if requirement.name == "apache-tvm-ffi"]

    assert ffi.specifier.contains("0.1.15.post2", prereleases=True)


def test_another_version_is_refused_with_the_command_that_cures_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tvm_compat, "PINNED", (("click", "0.0.1"), ("no-such-package", "1.0")))

    with pytest.raises(MissingToolError) as refused:
        tvm_compat.check_pair()

    assert re.search(r"click is \d\S+, edgekit needs 0\.0\.1", refused.value.message)
    assert "no-such-package is not installed, edgekit needs 1.0" in refused.value.message
    assert refused.value.hint == "pip install click==0.0.1 no-such-package==1.0"


@needs("torch")
def test_tvm_still_drags_torch_in_and_load_tvm_does_not() -> None:
    plain = "import sys, tvm_ffi; print('torch' in sys.modules)"
    cured = """
        import sys
        from edgekit.base.tvm_compat import load_tvm
        load_tvm()
        print('torch' in sys.modules)
    """

    assert (in_fresh_python(plain), in_fresh_python(cured)) == ("True", "False")


@needs("torch")
def test_torch_can_be_imported_before_and_after() -> None:
    script = """
        import sys
        if {early}: import torch
        from edgekit.base.tvm_compat import load_tvm
        load_tvm()
        import torch
        from tvm.relax.frontend.torch import from_exported_program
        print(torch.ones(2).sum().item())
    """

    for early in (True, False):
        assert in_fresh_python(script.format(early=early)) == "2.0"


def test_tvm_still_lists_its_functions_for_every_module_and_load_tvm_finds_as_many() -> None:
    counted = """
        import gc, json, sys
        sys.modules["torch"] = None
        from tvm_ffi import core, registry
        from edgekit.base.tvm_compat import load_tvm
        calls, functor = [], registry.get_global_func
        def counting(name, *more):
            if name == "ffi.FunctionListGlobalNamesFunctor":
                found = functor(name)()
                return lambda: lambda place: calls.append(place) or found(place)
            return functor(name, *more)
        registry.get_global_func = counting
        {how}
        assert gc.isenabled()
        bound = {{name: sorted(vars(module)) for name, module in sys.modules.items()
                 if name.startswith("tvm.") and name.endswith("_ffi_api")}}
        print(json.dumps([len(calls), bound]))
    """
    plain, cured = (
        json.loads(in_fresh_python(counted.format(how=how))) for how in ("import tvm", "load_tvm()")
    )

    assert len(plain[1]) > 30
    assert plain[1].pop("tvm.runtime.disco._ffi_api")
    assert cured[1] == plain[1]
    assert cured[0] < plain[0] / 4  # functions of Python are added meanwhile


def test_tvm_still_ignores_errors_of_its_import_and_load_tvm_raises_none_in_cpp() -> None:
    counted = """
        import json, sys
        sys.modules["torch"] = None
        from tvm_ffi import core, registry
        from edgekit.base.tvm_compat import load_tvm
        errors, functor = [], registry.get_global_func
        def counting(name, *more):
            found = functor(name, *more)
            if name not in ("ir.GetOp", "ir.RegisterOpAttr"):
                return found
            def call(*values):
                try:
                    return found(*values)
                except Exception as error:
                    errors.append(str(error))
                    raise
            return call
        type_index = core._object_type_key_to_index
        def index(key):
            found = type_index(key)
            if found is None:
                errors.append(key)
            return found
        registry.get_global_func, core._object_type_key_to_index = counting, index
        {how}
        tvm = sys.modules["tvm"]
        print(json.dumps([len(errors), sorted(
            [name, str(tvm.ir.Op.get(name).get_attr("TScriptPrinterName"))]
            for name in tvm.ir.Op.list_op_names()
        )]))
    """
    plain, cured = (
        json.loads(in_fresh_python(counted.format(how=how))) for how in ("import tvm", "load_tvm()")
    )

    assert plain[0] > 100
    assert cured == [0, plain[1]]


def test_schedules_still_compare_arguments_with_annotations_and_load_tvm_leaves_that_out() -> None:
    script = """
        import sys
        sys.modules["torch"] = None
        from edgekit.base.tvm_compat import load_tvm
        {how}
        from tvm.s_tir import Schedule
        checked = [method for method in vars(Schedule).values() if hasattr(method, "__wrapped__")]
        print(len(checked) > 30, "tvm.s_tir.schedule._type_checker" in sys.modules)
    """
    plain, cured = (in_fresh_python(script.format(how=how)) for how in ("import tvm", "load_tvm()"))

    assert (plain, cured) == ("True True", "False False")


def test_the_tensor_intrinsics_still_walk_the_stack_for_every_function() -> None:
    script = """
        import inspect
        from edgekit.base import tvm_compat
        tvm_compat.load_tvm()
        calls = []
        original = inspect.stack
        inspect.stack = lambda context=1: calls.append(context) or original(0)
        with tvm_compat._without_gpu_intrinsics():
            import tvm.s_tir.tensor_intrin
        print(len(calls))
    """

    assert int(in_fresh_python(script)) > 10


def test_the_cure_for_the_intrinsics_leaves_no_trace() -> None:
    script = """
        import inspect, sys
        from edgekit.base.tvm_compat import load_tensor_intrinsics
        before = inspect.stack
        load_tensor_intrinsics()
        gpu = [m for m in sys.modules if m in ('tvm.s_tir.tensor_intrin.cuda',
                                               'tvm.s_tir.tensor_intrin.rocm')]
        import tvm
        from tvm.s_tir import TensorIntrin
        from tvm.s_tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN
        TensorIntrin.get(VNNI_DOT_16x4_INTRIN)
        print(inspect.stack is before, gpu)
    """

    assert in_fresh_python(script) == "True []"


def test_constants_still_carry_their_array_as_value() -> None:
    tvm_compat.load_tvm()
    from tvm import relax

    value = np.arange(6, dtype="float32").reshape(2, 3)
    constant = relax.const(value)

    assert not hasattr(relax, "Constant")
    assert not hasattr(constant, "data")
    np.testing.assert_array_equal(tvm_compat.constant_array(constant), value)


def test_what_is_no_constant_has_no_array() -> None:
    tvm_compat.load_tvm()
    from tvm import relax

    assert tvm_compat.constant_array(relax.Var("x", relax.TensorType((1,), "float32"))) is None


@needs("torch")
@pytest.mark.parametrize(
    "words",
    [
        ("inspect",),
        ("partition", "--board", "local", "--offload", "ncnn"),
        ("recommend", "--board", "local"),
        ("build", "--board", "local", "-o", "bundle"),
    ],
    ids=lambda words: words[0],
)
def test_no_command_loads_torch_for_an_onnx_model(words: tuple[str, ...], tmp_path: Path) -> None:
    command, *options = words

    done = subprocess.run(
        command_line(command, str(write_model(tmp_path / "model.onnx")), *options),
        cwd=tmp_path,
        env=environment({"PYTHONPROFILEIMPORTTIME": "1"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    assert re.search(r"^import time:.* edgekit\.models\.model$", done.stderr, re.MULTILINE)
    assert not re.search(r"^import time:.* torch\.nn$", done.stderr, re.MULTILINE)
