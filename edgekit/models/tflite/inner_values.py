"""The values between the operators of a TFLite model, and variants of it that return some."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from edgekit.base.errors import ModelError
from edgekit.base.files import storage_errors
from edgekit.models.inner_value import InnerValue
from edgekit.models.tflite.file import read_tflite
from edgekit.models.tflite.flatbuffer import Buffer
from edgekit.models.tflite.operators import TYPES

_SUBGRAPHS, _OUTPUTS = 2, 2
"""The numbers of fields in the schema: a model's graphs, and a graph's outputs."""
_ALIGNMENT = 16


class TfliteInnerModel:
    """A TFLite file, with every value that an operator of its main graph computes."""

    def __init__(self, path: Path) -> None:
        file = read_tflite(path)
        graph = file.main
        with storage_errors("read the model", path):
            self._data = path.read_bytes()
        self._path = path
        tensors = graph.tensors
        places = [place for operator in graph.operators for place in operator.outputs]
        counts = Counter(places)
        self.values = tuple(
            InnerValue(tensors[place].name, f"{operator.name}_{number}", operator.name, place)
            for number, operator in enumerate(graph.operators)
            for place in operator.outputs
            if counts[place] == 1
            and tensors[place].dtype in TYPES
            and not tensors[place].open_dimensions
        )

    def write(self, path: Path, values: Sequence[InnerValue]) -> None:
        """Write the model with the values of these names as its outputs.

        The file is a FlatBuffer: a new list of outputs follows its end, and the field of the old
        list points there.
        """
        places = {value.name: value.handle for value in self.values}
        graph = next(Buffer(self._data).root().tables(_SUBGRAPHS))
        field = graph.place_of(_OUTPUTS)
        if field is None:
            raise ModelError(f"{self._path} has no outputs", hint="export the model again")
        data = bytearray(self._data)
        data += bytes(-len(data) % _ALIGNMENT)
        struct.pack_into("<I", data, field, len(data) - field)
        data += struct.pack(f"<I{len(values)}i", len(values), *(places[v.name] for v in values))
        data += bytes(-len(data) % _ALIGNMENT)
        with storage_errors("write a variant of the model", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
