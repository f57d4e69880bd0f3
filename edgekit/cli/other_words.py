"""Commands of other tools, and what edgekit calls them."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base.wording import did_you_mean

_SAME_WORDS = {
    **dict.fromkeys(("list", "ls", "ps"), ("list", "status")),
    **dict.fromkeys(("start", "run"), ("up",)),
    **dict.fromkeys(("stop", "end", "kill"), ("down",)),
    **dict.fromkeys(("rm", "delete"), ("remove", "down")),
    **dict.fromkeys(("compile", "convert"), ("build",)),
    **dict.fromkeys(("benchmark", "profile", "perf"), ("bench",)),
    **dict.fromkeys(("test", "check", "validate"), ("verify", "check")),
}
"""Commands that other tools' words stand for, the best first."""


def hint_for(word: str, known: Sequence[str], group: str) -> str:
    """Return the hint for a command that a group does not have."""
    same = [name for name in _SAME_WORDS.get(word, ()) if name in known]
    if same:
        return f"{group} {same[0]}"
    return did_you_mean(word, known, f"{group} --help lists the commands")
