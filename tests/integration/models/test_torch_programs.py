"""PyTorch programs: imported as they compute, refused where they could run code."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from support.building import command_line, environment
from support.needs import import_needed
from support.relax_modules import operators_in
from support.rpc_lab import eventually
from support.tflite_models import run_both

from edgekit.base.child import Child
from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.models.model import ModelSource, import_model, open_model, scan_model
from edgekit.models.torch import conversion

torch = import_needed("torch")


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.classes = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.norm(self.convolution(x)))
        return self.classes(y.mean((2, 3))), y


class Strange(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x)


def saved(folder: Path, module: torch.nn.Module, *example: torch.Tensor, **more: Any) -> Path:
    path = folder / "program.pt2"
    torch.manual_seed(0)
    program = torch.export.export(module.eval(), example, **more)
    torch.export.save(program, path)
    return path


def network(folder: Path, **more: Any) -> Path:
    torch.manual_seed(0)
    module = Network()
    with torch.no_grad():
        module.norm.running_mean.uniform_(-1, 1)
        module.norm.running_var.uniform_(0.5, 2)
    return saved(folder, module, torch.zeros(2, 3, 8, 8), **more)


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The archive with members changed."""
    target = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as out:
        for name in source.namelist():
            out.writestr(name, change(name, source.read(name)))
    return target


def with_outline(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    def edit(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        document = json.loads(content)
        change(document)
        return json.dumps(document).encode()

    return rewritten(path, edit)


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def test_a_program_computes_what_pytorch_computes(tmp_path: Path) -> None:
    found, expected = run_both(open_model(network(tmp_path)), {"x": images(2, 3, 8, 8)})
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def test_batch_norm_stays_one_operator_for_the_pass_that_folds_it(tmp_path: Path) -> None:
    assert "nn.batch_norm" in operators_in(import_model(open_model(network(tmp_path))).module)


def open_batch(folder: Path) -> Path:
    return network(folder, dynamic_shapes={"x": {0: torch.export.Dim("batch")}})


def test_an_open_dimension_is_listed_with_the_option_that_closes_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"an input is open: x \[s\d+,3,8,8\]") as caught:
        import_model(open_model(open_batch(tmp_path)))
    assert caught.value.hint == "fix it, for example: --shape x=1,3,8,8"


def test_a_closed_batch_computes_what_pytorch_computes(tmp_path: Path) -> None:
    source = open_model(open_batch(tmp_path), {"x": (5, 3, 8, 8)})
    found, expected = run_both(source, {"x": images(5, 3, 8, 8)})
    for name, wanted in expected.items():
        assert found[name].shape[0] == 5
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def test_only_open_dimensions_can_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="contradicts the model: dimension 3 is fixed at 8"):
        import_model(open_model(open_batch(tmp_path), {"x": (5, 3, 8, 9)}))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda x: x.to_sparse(), "a sparse tensor"),
        (lambda x: torch.complex(x, x), r"complex numbers \(complex64\)"),
        (lambda x: x.to(torch.float8_e5m2), "such as float8"),
    ],
)
def test_tensors_that_no_device_takes_are_named(
    returned: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    class Returning(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return returned(x)

    path = saved(tmp_path, Returning(), torch.ones(2, 3))
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        scan_model(open_model(path))
    assert "export a module" in str(caught.value.hint)


def test_the_scan_reads_the_outline(tmp_path: Path) -> None:
    scan = scan_model(open_model(network(tmp_path)))
    assert {entry.name for entry in scan.operators} >= {"aten.conv2d", "aten.batch_norm"}
    assert scan.inputs[0].shape == (2, 3, 8, 8)
    assert scan.parameters == 8 * 27 + 8 + 8 * 4 + 1 + 4 * 8 + 4
    assert scan.unsupported == ()


def test_an_operator_that_onnx_lacks_is_named(tmp_path: Path) -> None:
    source = open_model(saved(tmp_path, Strange(), torch.zeros(3, 4)))
    with pytest.raises(UnsupportedModelError, match="svd"):
        import_model(source)
    assert "svd" in scan_model(source).unsupported[0].name


class Trap:
    """Unpickling this writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.target,))


def refused(path: Path) -> ModelError:
    source = ModelSource(path, "torch", "")
    with pytest.raises(ModelError) as caught:
        import_model(source)
    assert caught.value.hint
    return caught.value


def test_pickled_sample_inputs_do_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    archive = tmp_path / "trap.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("archive/data.pkl", pickle.dumps(Trap(trap), protocol=2))
        out.writestr("archive/version", "3\n")
    changed = rewritten(
        network(tmp_path),
        lambda name, content: archive.read_bytes() if "sample_inputs" in name else content,
    )
    assert "could run any code" in refused(changed).message
    assert not trap.exists()


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    def edit(name: str, content: bytes) -> bytes:
        if not name.endswith("weights_config.json"):
            return content
        return content.replace(b'"use_pickle": false', b'"use_pickle": true')

    assert "pickled weights" in refused(rewritten(network(tmp_path), edit)).message


@pytest.mark.parametrize("target", ["torch.os.system", "torch.ops.load_library", "os.system"])
def test_calls_of_anything_but_operators_are_refused(target: str, tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["graph_module"]["graph"]["nodes"][0]["target"] = target

    assert target in refused(with_outline(network(tmp_path), edit)).message


@pytest.mark.parametrize(
    "expression", ["__import__('os').system('true')", "s0.__class__", "exec('1')", "print(s1)"]
)
def test_dimensions_that_are_code_are_refused(expression: str, tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        sizes = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0] = {"as_expr": {"expr_str": expression, "hint": None}}

    assert "dimension written as" in refused(with_outline(network(tmp_path), edit)).message


def test_guards_written_as_code_are_refused(tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["guards_code"] = ["print('hello')"]

    assert "guards" in refused(with_outline(network(tmp_path), edit)).message


@pytest.mark.parametrize("content", [b"text", b"PK\x03\x04 cut off", b"\x00" * 100])
def test_what_is_no_program_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.pt2"
    path.write_bytes(content)
    assert "not a saved PyTorch program" in refused(path).message


def test_a_truncated_program_is_named(tmp_path: Path) -> None:
    path = network(tmp_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "not a saved PyTorch program" in refused(path).message


def test_a_state_dict_is_told_apart_from_a_program(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt2"
    torch.save(Network().state_dict(), path)
    assert "has to be exported" in str(refused(path).hint)


class Slices(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        middle = x[:, 1 : x.shape[1] - 1]
        return x[:, -1], x[..., -3:-1], x[:, ::2], middle, x[:, x.shape[1] // 2]


def open_slices(folder: Path, extent: int = 6) -> Path:
    dynamic = {"x": {1: torch.export.Dim.DYNAMIC}}
    return saved(folder, Slices(), torch.zeros(2, extent), dynamic_shapes=dynamic)


def test_a_program_of_dynamic_dimensions_is_closed_by_a_shape(tmp_path: Path) -> None:
    path = open_slices(tmp_path)
    with pytest.raises(ModelError, match="is open") as caught:
        import_model(open_model(path))
    assert caught.value.hint == "fix it, for example: --shape x=2,1"
    found, expected = run_both(open_model(path, {"x": (2, 9)}), {"x": images(2, 9)})
    for name, wanted in expected.items():
        np.testing.assert_array_equal(found[name], wanted)


def test_a_shape_that_the_program_was_not_exported_for_is_refused(tmp_path: Path) -> None:
    source = open_model(open_slices(tmp_path), {"x": (2, 2)})
    with pytest.raises(ModelError, match=r"does not take x \[2, 2\]"):
        import_model(source)


@pytest.mark.parametrize(
    "guard",
    [
        "print('hello') == 1",
        "L['x'].size()[0].__class__ == 1",
        "__import__('os').system('true') == 0",
        "9**9**9 > 1",
        "L['x'].numpy()[0] == 1",
        "[].append(1) == 1",
    ],
)
def test_guards_are_comparisons_of_dimensions(guard: str, tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["guards_code"] = [guard]

    assert "guards" in refused(with_outline(network(tmp_path), edit)).message


class Places(torch.nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[:, i], x[:, i - 2], x[:, i[0]], x[i[2], i[0]], x.select(1, i[1].item())


def test_indices_that_come_at_run_time_count_from_the_end(tmp_path: Path) -> None:
    places = np.array([-1, -4, 1, 3])
    source = open_model(saved(tmp_path, Places(), torch.zeros(2, 6), torch.tensor(places)))
    found, expected = run_both(source, {"x": images(2, 6), "i": places})
    for name, wanted in expected.items():
        np.testing.assert_array_equal(found[name], wanted)


class AsManyAsASumSays(torch.nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[:, : i[0].item()]


def test_a_shape_that_depends_on_values_is_refused_until_the_value_is_known(tmp_path: Path) -> None:
    example = torch.zeros(2, 6), torch.tensor([3])
    path = saved(tmp_path, AsManyAsASumSays(), *example)
    with pytest.raises(UnsupportedModelError, match="computed from the model input 'i'") as caught:
        import_model(open_model(path))
    assert caught.value.hint == "bind it to a value: --constant i=VALUE"

    source = open_model(path, constants={"i": np.array([4])})
    found, expected = run_both(source, {"x": images(2, 6)})
    for name, wanted in expected.items():
        assert wanted.shape == (2, 4)
        np.testing.assert_array_equal(found[name], wanted)


class Loss(torch.nn.Module):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.loss = torch.nn.CrossEntropyLoss(**options)

    def forward(self, scores: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return self.loss(scores, classes)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduction": "sum"},
        {"reduction": "none", "ignore_index": 0},
        {"label_smoothing": 0.1, "weight": torch.linspace(0.1, 1, 6)},
    ],
)
def test_cross_entropy_is_what_pytorch_computes(options: dict[str, Any], tmp_path: Path) -> None:
    classes = np.array([1, 0, 5, 2])
    source = open_model(saved(tmp_path, Loss(options), torch.zeros(4, 6), torch.tensor(classes)))
    found, expected = run_both(source, {"scores": images(4, 6), "classes": classes})
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5)


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(6, 5, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0][:, -1]


class Sizes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        functional = torch.nn.functional
        return (
            functional.interpolate(x, scale_factor=1.7, mode="bilinear"),
            functional.interpolate(x, size=(9, 5), mode="nearest"),
            functional.avg_pool2d(x, 3, stride=2, divisor_override=4),
            functional.adaptive_max_pool2d(x, (3, 2)),
            functional.grid_sample(x, x[..., :2].permute(0, 2, 1, 3), align_corners=False),
        )


class Reductions(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *(x.amax(1), x.amin((2, 3)), x.prod(1), x.logsumexp(1), x.cumprod(2)),
            *(torch.cdist(x, x), x.kthvalue(3, 2)[0], x.median(), x.median(3)[0]),
            *(torch.hypot(x, x + 1), torch.special.erfc(x), torch.exp2(x), x.unfold(2, 3, 2)),
        )


class Scatters(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = torch.tensor([2, 0, 2])
        places = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
        return (
            torch.zeros(4, 8).index_add(0, rows, x[:3]),
            torch.zeros(4, 8).scatter_add(0, places, x[:2, :4]),
            x.scatter(1, places, 9.0),
            x.index_put((rows, rows), x[0, :3]),
            x.index_put((rows, rows), x[0, :3], accumulate=True),
        )


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (Recurrent, (2, 4, 6)),
        (Sizes, (2, 3, 8, 7)),
        (Reductions, (2, 3, 5, 7)),
        (Scatters, (4, 8)),
    ],
)
def test_modules_of_every_tutorial_compute_what_pytorch_computes(
    module: type[torch.nn.Module], shape: tuple[int, ...], tmp_path: Path
) -> None:
    source = open_model(saved(tmp_path, module(), torch.zeros(shape)))
    found, expected = run_both(source, {"x": images(*shape)})
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_input_may_be_an_output_and_a_value_several(tmp_path: Path) -> None:
    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x + 1
            return x, y, y

    source = open_model(saved(tmp_path, Same(), torch.zeros(3)))
    found, expected = run_both(source, {"x": images(3)})
    assert len(found) == len(expected) == 3
    for name, wanted in expected.items():
        np.testing.assert_array_equal(found[name], wanted)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    """An exporter that does not end by itself, however slow this host is."""
    monkeypatch.setattr(conversion, "_IDLE_SECONDS", 3600)
    conversion.kept_exporter.cache_clear()
    child = conversion.kept_exporter(os.getpid())
    yield child
    child.end()
    conversion.kept_exporter.cache_clear()


def test_one_process_converts_several_programs(tmp_path: Path, exporter: Child) -> None:
    """It stays where a program is refused, and a new one starts where it has ended."""
    pids = []
    for name in ("first", "second", "third"):
        program = torch.export.export(torch.nn.Linear(3, 2), (torch.randn(1, 3),))
        path = tmp_path / f"{name}.pt2"
        torch.export.save(program, path)
        assert not scan_model(open_model(path)).unsupported
        pids.append(exporter.pid)
        with pytest.raises(UnsupportedModelError, match="geqrf"):
            refused = tmp_path / f"{name}-refused.pt2"
            torch.export.save(torch.export.export(Refused(), (torch.randn(3, 3),)), refused)
            scan_model(open_model(refused))
        assert exporter.pid == pids[-1]
        if name == "second":
            assert exporter._process is not None and exporter._process.stdin is not None
            exporter._process.stdin.close()  # as if it had ended, because it had nothing to do
    assert pids[0] == pids[1] != pids[2]


class Refused(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.geqrf(x)[0]


def test_a_conversion_that_dies_is_named_and_the_next_one_works(
    tmp_path: Path, exporter: Child
) -> None:
    exporter.start()
    assert exporter.pid is not None
    os.kill(exporter.pid, signal.SIGKILL)
    path = saved(tmp_path, torch.nn.Linear(11, 2), torch.zeros(1, 11))
    with pytest.raises(UnsupportedModelError, match="cannot convert"):
        scan_model(open_model(path))
    assert not scan_model(open_model(path)).unsupported


def test_an_interrupted_conversion_leaves_no_process(tmp_path: Path) -> None:
    path = saved(tmp_path, torch.nn.Linear(13, 2), torch.zeros(1, 13))  # in no cache yet
    build = subprocess.Popen(
        [*command_line(), "build", str(path), "--board", "local", "-o", str(tmp_path / "out")],
        # Another test may have converted the same program.
        env=environment({"EDGEKIT_CACHE_DIR": str(tmp_path / "cache")}),
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    exporters: list[psutil.Process] = []

    def runs() -> bool:
        exporters.extend(exporters_of(build.pid))
        return bool(exporters)

    eventually(runs)
    build.send_signal(signal.SIGINT)
    assert build.wait(timeout=240) == 130
    eventually(lambda: not any(exporter.is_running() for exporter in exporters))
    assert not (tmp_path / "out").exists()


def exporters_of(command: int) -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process(command).children(recursive=True)
        if is_exporter(process)
    ]


def is_exporter(process: psutil.Process) -> bool:
    try:
        return any("edgekit.models.torch.exporter" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False
