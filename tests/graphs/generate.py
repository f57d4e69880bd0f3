"""Random ONNX graphs by nnsmith, one file a seed. Runs with nnsmith's packages on the path.

    python generate.py FOLDER FIRST LAST

Writes FOLDER/SEED.onnx for each seed, or FOLDER/SEED.none where nnsmith found no graph, with the
reason. Seeds that have a file are skipped.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any

MOST_NODES = 20
LARGEST_TENSOR = 1 << 14
DRAWS = 20
MILLISECONDS = 8000
"""Time for the search for one graph. A graph that was found is kept: a slow machine changes
nothing of what is on disk."""


def main() -> int:
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        seed
        for seed in range(first, last + 1)
        if not any((folder / f"{seed}{suffix}").exists() for suffix in (".onnx", ".none"))
    ]
    if not wanted:
        return 0
    os.environ["XDG_CACHE_HOME"] = str(folder / "nnsmith")
    warnings.simplefilter("ignore")
    make = generator(folder)
    started = time.monotonic()
    for count, seed in enumerate(wanted, 1):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                content = make(seed)
        except Exception as error:  # noqa: BLE001 - nnsmith gives up in many ways
            (folder / f"{seed}.none").write_text(f"{type(error).__name__}: {error}\n")
            continue
        part = folder / f"{seed}.part"
        part.write_bytes(content)
        part.rename(folder / f"{seed}.onnx")
        if count % 50 == 0:
            print(
                f"{count} of {len(wanted)} graphs, {time.monotonic() - started:.0f} s", flush=True
            )
    return 0


def operators_of(kind: Any, runtime: Any) -> Any:
    """Operators with the types for which the runtime has a kernel.

    nnsmith draws an example of each operator. Some draws end in an error of its own.
    """
    from nnsmith.error import InternalError
    from nnsmith.narrow_spec import auto_opset

    for draw in range(DRAWS):
        random.seed(draw)
        with contextlib.suppress(InternalError):
            return auto_opset(kind, runtime, vulops=False)
    raise SystemExit("nnsmith draws no example of each operator that is sound")


def generator(folder: Path) -> Any:
    """A function from seed to the bytes of a model."""
    import numpy as np
    import onnx
    import torch

    if not hasattr(onnx, "_serialize"):  # An older onnx had it, and nnsmith calls it.
        onnx._serialize = onnx.ModelProto.SerializeToString

    export = torch.onnx.export

    def classic_export(*arguments: Any, **options: Any) -> Any:
        return export(*arguments, **{**options, "dynamo": False})

    torch.onnx.export = classic_export  # nnsmith knows only the exporter before dynamo's.

    from nnsmith.abstract.extension import activate_ext
    from nnsmith.backends import BackendFactory
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize import Model

    for empty in (folder / "nnsmith").rglob("*.yaml"):
        if empty.stat().st_size < 100:  # A first run that failed leaves an empty list of operators.
            empty.unlink()
    kind = Model.init("onnx", backend_target="cpu")
    kind.add_seed_setter()
    # Only operators of types for which onnxruntime has a kernel: other graphs have no oracle.
    runtime = BackendFactory.init("onnxruntime", target="cpu", optmax=False)
    operators = operators_of(kind, runtime)
    if not operators:
        raise SystemExit("nnsmith finds no operator that onnxruntime runs")
    activate_ext(opset=operators, factory=runtime)

    def make(seed: int) -> bytes:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        generated = model_gen(
            opset=operators,
            method="symbolic-cinit",
            seed=seed,
            max_elem_per_tensor=LARGEST_TENSOR,
            max_nodes=1 + seed % MOST_NODES,
            timeout_ms=MILLISECONDS,
            rank_choices=None,
            dtype_choices=None,
        )
        model = kind.from_gir(generated.make_concrete())
        model.refine_weights()
        content: bytes = model.native_model.SerializeToString()
        return content

    return make


if __name__ == "__main__":
    sys.exit(main())
