"""A region as Vela makes it: with edgekit's own tables, and decoded for the twin."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgekit.backends.ethos_u.configuration import ACCELERATORS, Configuration
from edgekit.backends.ethos_u.counts import Counts, counts
from edgekit.backends.ethos_u.network import Network, NotForVela
from edgekit.backends.ethos_u.rounding import with_roundings
from edgekit.backends.ethos_u.stream import TABLE_BYTES, NotInterpreted, operations, tables
from edgekit.backends.ethos_u.vela import Made, compile_network
from edgekit.backends.ethos_u.weights import Decoded, decode
from edgekit.base.arrays import Array


@dataclass(frozen=True, eq=False)
class Compiled:
    made: Made
    operators: tuple[str, ...]
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    counts: Counts
    """What its commands compute and move."""
    decoded: Decoded | None
    """The weights for the twin; None without a twin."""


def compile_region(network: Network, configuration: Configuration) -> Compiled:
    made = _with_tables(compile_network(network, configuration), network)
    accelerator = ACCELERATORS[configuration.accelerator]
    try:
        made = with_roundings(made, network.layers)
        decoded = decode(made, accelerator) if configuration.twin else None
        found = counts(operations(made.commands))
    except NotInterpreted as reason:
        raise NotForVela(f"the twin does not interpret what Vela makes of it: {reason}") from reason
    return Compiled(
        made, network.operators, network.input_bytes, network.output_bytes, found, decoded
    )


def _with_tables(made: Made, network: Network) -> Made:
    """Replace the tables of hard-swish by those of the model's own functions."""
    if not network.tables:
        return made
    import numpy as np

    from edgekit.aot.quantised.graph import Target
    from edgekit.aot.quantised.tables import hard_swish

    constants = bytearray(made.constants)
    places = tables(made)
    free = {place: np.frombuffer(constants, np.int8, TABLE_BYTES, place).copy() for place in places}
    if len(free) != len(network.tables):
        raise NotForVela("Vela makes another number of tables of it than it has functions")
    for source, result, table in network.tables:
        before = Target(source.scale, source.zero_point)
        after = Target(result.scale, result.zero_point)
        wanted: Array = np.array(hard_swish(before, after, 1).table, np.int64)
        place = min(free, key=lambda place: int(np.abs(free[place] - wanted).sum()))
        if int(np.abs(free[place] - wanted).max()) > 2:
            raise NotForVela("Vela's table for its function is not found")
        del free[place]
        constants[place : place + TABLE_BYTES] = np.array(table, np.int8).tobytes()
    return replace(made, constants=bytes(constants))
