"""A library's weights are a blob of their own: a new program with the same weights is small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for
from support.needs import needs
from support.onnx_models import onnx_model
from support.registry import RegistryServer

import edgekit
from edgekit.base.errors import SignatureError
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.devices.elf import weight_bytes

pytestmark = needs("docker-registry")
RANDOM = np.random.default_rng(3)
WEIGHTS = {"weights": RANDOM.standard_normal((256, 512)).astype(np.float32)}


def built(folder: Path, name: str, last: str) -> Bundle:
    nodes = [
        helper.make_node("MatMul", ["image", "weights"], ["product"]),
        helper.make_node(last, ["product"], ["features"]),
    ]
    model = folder / f"{name}.onnx"
    onnx.save(onnx_model(nodes, {"image": [1, 256]}, ["features"], WEIGHTS), model)
    return build(request_for(model), folder / name, isolated=False).bundle


def test_the_same_weights_are_sent_and_fetched_once(
    registry: RegistryServer, workspace: edgekit.Workspace, tmp_path: Path
) -> None:
    first, second = built(tmp_path, "first", "Relu"), built(tmp_path, "second", "Tanh")
    weights = weight_bytes(first.library)
    assert weights >= 256 * 512 * 4

    sent = [workspace.publish(one, registry.address()) for one in (first, second)]
    fetched = []
    for one in (first, second):
        workspace.publish(one, registry.address())
        fetched.append(workspace.fetch(registry.address(), "fetched"))
        assert open_bundle(tmp_path / "fetched").digest == one.digest

    assert sent[0].sent == sent[0].total > weights
    assert sent[1].sent <= sent[1].total - weights
    assert fetched[0].received == fetched[0].total
    assert fetched[1].received <= fetched[1].total - weights


def test_parts_that_make_up_another_file_are_refused(
    registry: RegistryServer, workspace: edgekit.Workspace, tmp_path: Path
) -> None:
    bundle = built(tmp_path, "first", "Relu")
    workspace.publish(bundle, registry.address())
    document = json.loads(registry.document())
    cut = [
        layer for layer in document["layers"] if ".so" in layer["annotations"]["dev.edgekit.path"]
    ]
    assert len(cut) == 3
    begin, middle = cut[0]["annotations"], cut[1]["annotations"]

    # The weights first: each blob is whole, and the file is not.
    begin["dev.edgekit.offset"], middle["dev.edgekit.offset"] = str(cut[1]["size"]), "0"
    registry.put_document(json.dumps(document).encode())
    with pytest.raises(SignatureError, match="not the file that was signed"):
        workspace.fetch(registry.address(), "fetched")
    assert not (tmp_path / "fetched").exists()

    # Parts that leave a gap count for nothing, and the whole file was never sent.
    begin["dev.edgekit.offset"] = "7"
    registry.put_document(json.dumps(document).encode())
    with pytest.raises(edgekit.EdgekitError, match="it has none"):
        workspace.fetch(registry.address(), "fetched")
    assert not (tmp_path / "fetched").exists()
