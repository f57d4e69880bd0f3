"""MetaSchedule's text form of a schedule: one instruction after another.

Such text may come from another tool's file or from a team's database, and some instructions are
dangerous: a pragma makes TVM compile the code in it. So only instructions that rearrange loops are
accepted, and only MetaSchedule's own annotations. This module does not use TVM.
"""

from __future__ import annotations

from edgekit.base.json_reader import read_json

LONGEST_TRACE = 1 << 18
_DEEPEST = 24

_INSTRUCTIONS = frozenset(
    (
        *("GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers"),
        *("GetOutputBlocks", "SamplePerfectTile", "SamplePartitionedTile"),
        *("SampleCategorical", "SampleComputeLocation"),
        *("Split", "Fuse", "Merge", "Reorder", "ReorderBlockIterVar", "AddUnitLoop"),
        *("LoopPartition", "Parallel", "Vectorize", "Unroll"),
        *("ComputeAt", "ReverseComputeAt", "ComputeInline", "ReverseComputeInline"),
        *("CacheRead", "CacheWrite", "CacheIndex", "ReIndex", "ReindexCacheRead"),
        *("ReindexCacheWrite", "DecomposeReduction", "RFactor", "DecomposePadding"),
        *("Annotate", "Unannotate", "StorageAlign", "TransformLayout", "TransformBlockLayout"),
    )
)
_ANNOTATIONS = "meta_schedule."


def check_trace(text: str) -> None:
    """Raise ValueError for text that is no trace or has instructions beyond CPU schedules."""
    if len(text) > LONGEST_TRACE:
        raise ValueError("a trace that is longer than any that was written")
    try:
        document = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("a trace that is no JSON") from error
    if not isinstance(document, list) or len(document) != 2:
        raise ValueError("a trace has instructions and decisions")
    instructions, decisions = document
    if not isinstance(instructions, list) or not isinstance(decisions, list):
        raise ValueError("a trace has instructions and decisions")
    _check_depth(document, 0)
    for instruction in instructions:
        _check_instruction(instruction)
    for decision in decisions:
        if not isinstance(decision, list) or len(decision) != 2 or not _is_whole(decision[0]):
            raise ValueError("a decision is about an instruction")
        if not 0 <= decision[0] < len(instructions):
            raise ValueError("a decision about an instruction that is not there")


def _check_instruction(instruction: object) -> None:
    if not isinstance(instruction, list) or len(instruction) != 4:
        raise ValueError("an instruction has a name, inputs, attributes and outputs")
    name, inputs, attributes, outputs = instruction
    if not isinstance(name, str) or name not in _INSTRUCTIONS:
        raise ValueError("an instruction that no schedule of a CPU has")
    if not all(isinstance(part, list) for part in (inputs, attributes, outputs)):
        raise ValueError("an instruction's inputs, attributes and outputs are lists")
    if name == "Annotate" and not all(
        isinstance(key, str) and key.startswith(_ANNOTATIONS) for key in attributes
    ):
        raise ValueError("an annotation that is not MetaSchedule's own")


def _check_depth(value: object, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError("a trace that is deeper than any that was written")
    if isinstance(value, list):
        for item in value:
            _check_depth(item, depth + 1)
    elif not (value is None or isinstance(value, (str, int, float, bool))):
        raise ValueError("a trace is lists, texts and numbers")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
