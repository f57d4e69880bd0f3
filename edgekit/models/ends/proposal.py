"""What `edgekit init` proposes to stand before and behind a model of a known family."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.base.quoting import one_line, toml_key, toml_string

_FEW_LABELS = 200


@dataclass(frozen=True)
class Proposal:
    family: str
    """What the model was recognised as."""
    reason: str
    preprocess: tuple[str, ...]
    """Lines for [preprocess.NAME]."""
    postprocess: tuple[str, ...]
    """Lines for [postprocess]."""
    labels: tuple[str, ...] = ()
    """The labels in the file."""
    open: str = ""
    """What its user still has to add before [postprocess] can be read; empty if nothing."""


def proposed_text(name: str, proposal: Proposal, labels_file: str) -> str:
    """Return the lines for edgekit.toml. Many labels are expected in `labels_file`."""
    lines = ["", one_line(f"# {proposal.family}: {proposal.reason}.")]
    lines.append("# Compare both sections with the model's training; docs/ends.md has every key.")
    lines += [f"[preprocess.{toml_key(name)}]", *proposal.preprocess, ""]
    behind = ["[postprocess]", *proposal.postprocess]
    if len(proposal.labels) > _FEW_LABELS:
        behind.append(f"labels = {toml_string(labels_file)}")
    elif proposal.labels:
        behind.append(f"labels = [{', '.join(map(toml_string, proposal.labels))}]")
    if proposal.open:
        lines.append(f"# {proposal.open}")
        behind = [f"# {line}" for line in behind]
    return "\n".join([*lines, *behind]) + "\n"


def labels_for_file(proposal: Proposal) -> str | None:
    """Return the text of the file with labels; None if the section lists them."""
    few = len(proposal.labels) <= _FEW_LABELS
    return None if few else "\n".join(proposal.labels) + "\n"
