"""`edgekit init` recognises models of known families, and what it proposes fits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.building import write_model

from edgekit.models.ends.postprocess import Boxes, Classes, Mask, Text
from edgekit.models.model import signature_of
from edgekit.models.onnx.ends.graphs import front_graph
from edgekit.models.oracle import oracle_for
from edgekit.models.oracle_process import in_this_process
from edgekit.project.file import Project, choose_model, init_project, read_project

BOXES = {"boxes", "scores", "classes"}


def model(
    folder: Path,
    picture: Sequence[int],
    outputs: Mapping[str, Sequence[int]],
    *,
    last: str = "Identity",
    middle: str | None = None,
    **metadata: str,
) -> Path:
    """A model with the ends of a family, and noise as outputs."""
    random = np.random.default_rng(3)
    nodes = [helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0)]
    weights = []
    if middle == "Resize":
        names = ["images", "", "scales"]
        weights.append(numpy_helper.from_array(np.ones(4, np.float32), "scales"))
        nodes.append(helper.make_node("Resize", names, ["resized"]))
    for name, shape in outputs.items():
        noise = random.normal(size=shape).astype(np.float32)
        weights.append(numpy_helper.from_array(noise, f"{name}.noise"))
        nodes.append(helper.make_node("Add", [f"{name}.noise", "mean"], [f"{name}.sum"]))
        nodes.append(helper.make_node(last, [f"{name}.sum"], [name]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, picture)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(made, metadata)
    onnx.checker.check_model(made)
    onnx.save(made, folder / "net.onnx")
    return folder / "net.onnx"


def run(project: Project) -> dict[str, np.ndarray]:
    """Run the proposed program in onnxruntime on a picture."""
    source = choose_model(project, None, {}, {})
    front = front_graph(source.ends, signature_of(source).inputs)
    assert front is not None
    (item,) = front.model.graph.input
    shape = [extent.dim_value for extent in item.type.tensor_type.shape.dim]
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    return oracle_for(source, in_this_process).run({item.name: pixels})


@pytest.mark.parametrize(
    ("picture", "outputs", "options", "task", "decode", "made"),
    [
        ([1, 3, 640, 640], {"output0": [1, 84, 8400]}, {}, Boxes, "yolov8", BOXES),
        (
            [1, 3, 320, 320],
            {"output0": [1, 6300, 5 + 2 + 32], "output1": [1, 32, 80, 80]},
            {"task": "segment", "names": "{0: 'a', 1: 'b'}"},
            Boxes,
            "yolov5",
            {*BOXES, "masks"},
        ),
        (
            [1, 3, 320, 320],
            {"output0": [1, 4 + 2 + 32, 2100], "output1": [1, 32, 80, 80]},
            {"task": "segment", "names": "{0: 'a', 1: 'b'}"},
            Boxes,
            "yolov8",
            BOXES | {"masks"},
        ),
        (
            [1, 3, 320, 320],
            {"output0": [1, 4 + 1 + 51, 2100]},
            {"task": "pose", "kpt_shape": "[17, 3]", "names": "{0: 'person'}"},
            Boxes,
            "yolov8",
            BOXES | {"landmarks"},
        ),
        ([1, 3, 320, 320], {"output0": [1, 2100, 85]}, {}, None, None, set()),
        ([1, 3, 320, 320], {"output0": [1, 6300, 85]}, {}, Boxes, "yolov5", BOXES),
        ([1, 3, 320, 320], {"output0": [1, 300, 6]}, {}, Boxes, "end2end", BOXES),
        (
            [1, 3, 640, 640],
            {"loc": [1, 16800, 4], "conf": [1, 16800, 2], "landms": [1, 16800, 10]},
            {},
            Boxes,
            "retinaface",
            BOXES | {"landmarks"},
        ),
        (
            [1, 3, 240, 320],
            {"scores": [1, 4420, 2], "boxes": [1, 4420, 4]},
            {},
            Boxes,
            "corners",
            BOXES,
        ),
        ([1, 3, 224, 224], {"logits": [1, 1000]}, {}, Classes, None, {"scores", "classes"}),
        ([1, 224, 224, 3], {"y": [1, 1000]}, {}, Classes, None, {"scores", "classes"}),
        (
            [1, 3, 64, 64],
            {"out": [1, 21, 64, 64], "aux": [1, 21, 64, 64]},
            {"middle": "Resize"},
            Mask,
            None,
            {"mask", "aux"},
        ),
    ],
)
def test_what_is_proposed_for_a_family_fits_its_model(
    picture: Any, outputs: Any, options: Any, task: Any, decode: Any, made: Any, tmp_path: Path
) -> None:
    file = model(tmp_path, picture, outputs, **options)

    project = init_project(tmp_path, file)

    section = project.ends.postprocess
    if task is None:
        # A third of YOLOv5's boxes: no family has so many.
        assert section is None and not project.ends.preprocess
        return
    assert isinstance(section, task)
    assert getattr(section, "decode", None) == decode
    assert set(run(project)) == made


def test_names_in_a_file_of_ultralytics_become_labels(tmp_path: Path) -> None:
    names = str({i: f"class {i}" for i in range(5)})
    file = model(tmp_path, [1, 3, 64, 64], {"output0": [1, 9, 84]}, task="detect", names=names)

    section = init_project(tmp_path, file).ends.postprocess

    assert isinstance(section, Boxes)
    assert section.labels == tuple(f"class {i}" for i in range(5))


def test_characters_in_a_recogniser_become_a_file_of_labels(tmp_path: Path) -> None:
    characters = [chr(0x4E00 + i) for i in range(6623)]
    outputs = {"out": [1, 40, 6625]}
    file = model(
        tmp_path, [1, 3, 48, 320], outputs, last="Softmax", character="\n".join(characters)
    )

    project = init_project(tmp_path, file)

    section = project.ends.postprocess
    assert isinstance(section, Text) and not section.softmax
    assert section.labels == (*characters, " ")
    assert (tmp_path / "net.labels.txt").exists()
    assert set(run(project)) == {"scores", "classes"}


def test_a_recogniser_without_characters_says_what_to_add(tmp_path: Path) -> None:
    file = model(tmp_path, [1, 3, 48, 320], {"out": [1, 40, 6625]}, last="Softmax")

    project = init_project(tmp_path, file)

    text = project.path.read_text()
    assert project.ends.postprocess is None and "images" in project.ends.preprocess
    assert "6624 characters" in text
    (tmp_path / "characters.txt").write_text("\n".join(map(str, range(6624))), encoding="utf-8")
    _, _, behind = text.partition("then remove the #.\n")
    project.path.write_text(text.replace(behind, behind.replace("# ", "")))
    assert set(run(read_project(project.path))) == {"scores", "classes"}


def test_names_of_a_hostile_file_stay_names(tmp_path: Path) -> None:
    names = str(["\n[store]\nurl = 'x'", '"quoted"', "\x00"])
    file = model(tmp_path, [1, 3, 64, 64], {'o"\n[x': [1, 3]}, task="classify", names=names)

    project = init_project(tmp_path, file)

    section = project.ends.postprocess
    assert isinstance(section, Classes) and len(section.labels) == 3
    assert project.store is None


def test_a_model_of_no_family_gets_no_proposal(tmp_path: Path) -> None:
    project = init_project(tmp_path, write_model(tmp_path / "net.onnx"))

    assert not project.ends.preprocess and project.ends.postprocess is None
