"""The results of `benchmarks.models`: kept in a file, and shown as docs/models.md."""

from __future__ import annotations

import datetime
import json
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import figures
from benchmarks.model_zoo import MODELS, ZooModel
from edgekit.base.files import write_atomically

DOCS = Path(__file__).resolve().parent.parent / "docs" / "models.md"
COMMAND = "python -m benchmarks.models"
SEEDS = 10
ROUNDS = 5
JUDGED = ("edgekit/compiler", "edgekit/models")
"""The code whose figures these are."""
SECTIONS = {
    "vision": "Images",
    "speech": "Speech and sound",
    "text": "Text",
    "series": "Time series, robots, chemistry",
}
RIGHT, WRONG, CRASH = "right", "WRONG", "CRASH"


@dataclass(frozen=True)
class Verdict:
    """What a model holds, and whether its numbers are right."""

    result: str
    """`RIGHT`, or `WRONG` or `CRASH` with the reason, or the reason of a refusal."""
    code: str
    day: str
    format: str = "–"
    operators: int = 0
    kinds: int = 0
    parameters: int = 0
    macs: int | None = None
    error: str = "–"
    agreed: int | None = None
    build_seconds: float | None = None


@dataclass(frozen=True)
class Times:
    edgekit: float
    """Median seconds."""
    ratios: tuple[float, ...]
    """The ratios of edgekit's median to the oracle's, one a round."""
    code: str
    day: str
    machine: str

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({min(self.ratios):.2f} to {max(self.ratios):.2f})"


class Results:
    """The rows known so far, in a file if one is named."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.verdicts: dict[str, Verdict] = {}
        self.times: dict[str, Times] = {}
        if file is not None and file.is_file():
            kept = json.loads(file.read_text(encoding="utf-8"))
            self.verdicts = {name: Verdict(**row) for name, row in kept["verdicts"].items()}
            self.times = {
                name: Times(**{**row, "ratios": tuple(row["ratios"])})
                for name, row in kept["times"].items()
            }

    def bundle(self, model: ZooModel) -> Path | None:
        """The folder of a model's build; None where no file keeps results."""
        if self._file is None:
            return None
        return self._file.with_suffix(".bundles") / re.sub(r"\W+", "-", model.name).lower()

    def add(self, name: str, row: Verdict | Times) -> None:
        if isinstance(row, Verdict):
            self.verdicts[name] = row
            self.times.pop(name, None)
        else:
            self.times[name] = row
        if self._file is not None:
            kept = {
                "verdicts": {each: asdict(row) for each, row in self.verdicts.items()},
                "times": {each: asdict(row) for each, row in self.times.items()},
            }
            write_atomically(self._file, json.dumps(kept, indent=1) + "\n")

    def unjudged(self, models: Sequence[ZooModel]) -> list[ZooModel]:
        """Return the models without a verdict, then those with one of other code."""
        now = code()
        stale = [m for m in models if m.name not in self.verdicts or self._of(m).code != now]
        return sorted(stale, key=lambda model: model.name in self.verdicts)

    def untimed(self, models: Sequence[ZooModel]) -> list[ZooModel]:
        """Return the models that were built and not timed since."""
        return [
            model
            for model in models
            if model.name in self.verdicts
            and self._of(model).result == RIGHT
            and model.name not in self.times
        ]

    def _of(self, model: ZooModel) -> Verdict:
        return self.verdicts[model.name]


def code() -> str:
    return " ".join(figures.digest(figures.ROOT / folder) for folder in JUDGED)


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def page(results: Results) -> str:
    """Return the page with all rows. It is dated where every row is of today's code."""
    known = [model for model in MODELS if model.name in results.verdicts]
    rows: list[Verdict | Times] = [*results.verdicts.values(), *results.times.values()]
    header = figures.header(COMMAND, JUDGED, min(row.day for row in rows))
    if any(row.code != code() for row in rows):
        header = figures.undated(header)
    machines = Counter(row.machine for row in results.times.values())
    text = PREAMBLE.format(
        seeds=SEEDS,
        rounds=ROUNDS,
        header=header,
        summary=summary(results),
        timed=f"Timed on {machines.most_common(1)[0][0]}." if machines else "Not timed yet.",
    )
    for section, title in SECTIONS.items():
        chosen = [model for model in known if model.section == section]
        text += f"\n## {title}\n\n{table(chosen, results)}" if chosen else ""
    waiting = [model.name for model in MODELS if model.name not in results.verdicts]
    return text + (f"\nNot built yet: {', '.join(waiting)}.\n" if waiting else "")


def summary(results: Results) -> str:
    """Return the counts of all rows in sentences."""
    known = [model for model in MODELS if model.name in results.verdicts]
    right = [model for model in known if results.verdicts[model.name].result == RIGHT]
    wrong = [m for m in known if results.verdicts[m.name].result.startswith((WRONG, CRASH))]
    text = (
        f"{len(known)} models of {len({model.package.name for model in known})} packages: "
        f"{len(right)} right, {len(wrong)} wrong, {len(known) - len(right) - len(wrong)} refused "
        "with a reason."
    )
    ratios = sorted(times.ratio for times in results.times.values())
    if ratios:
        faster = sum(ratio < 1 for ratio in ratios)
        text += (
            f" Of {len(ratios)} that were timed, {faster} are faster than their own runtime; the "
            f"median ratio is {statistics.median(ratios):.2f}, the largest {ratios[-1]:.2f}."
        )
    return text


def table(models: Sequence[ZooModel], results: Results) -> str:
    lines = [
        "| model | package | format | operators (kinds) | parameters | MACs | result "
        "| largest error | same answer | build s | edgekit ms | edgekit / oracle |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [line(model, results) for model in models]
    return "\n".join(lines) + "\n"


def line(model: ZooModel, results: Results) -> str:
    verdict, times = results.verdicts[model.name], results.times.get(model.name)
    seconds = verdict.build_seconds
    cells = [
        model.name,
        model.package.name,
        verdict.format,
        f"{verdict.operators} ({verdict.kinds})",
        _millions(verdict.parameters),
        "–" if verdict.macs is None else _millions(verdict.macs),
        verdict.result.replace("|", "/"),
        verdict.error,
        "–" if verdict.agreed is None else f"{verdict.agreed} of {SEEDS}",
        "–" if seconds is None else f"{seconds:.1f}",
        "–" if times is None else f"{times.edgekit * 1e3:.3g}",
        "–" if times is None else str(times),
    ]
    return "| " + " | ".join(cells) + " |"


def _millions(number: int) -> str:
    return f"{number / 1e6:.3g} M" if number < 1e9 - 5e5 else f"{number / 1e9:.3g} G"


PREAMBLE = """# Real models

`python -m benchmarks.models` writes these tables. The models come out of Python packages of the
package index, at pinned versions with pinned hashes (`benchmarks/model_zoo.toml`); the packages are
neither installed nor run.

{summary}

Each model is built for the board `local` without tuning and compared with the runtime of its own
format: onnxruntime with every optimisation off, LiteRT's reference kernels, PyTorch. *Result*:
right where `edgekit verify` passes ([tolerances](verify.md#tolerances)) with the reference vectors
of the bundle and with {seeds} seeded inputs; otherwise the error that the user gets. *Largest
error*: over all elements, outputs and seeded inputs, relative to the largest element of the
expected tensor, or in output steps (LSB) where outputs are quantised. *Same answer*: how often the
highest class was the same. *edgekit / oracle*: the ratio of the median times of edgekit and of the
oracle's fast kernels (all optimisations on), both on one thread, taken in turns in {rounds} rounds:
the median round and, in brackets, the lowest and the highest. Above 1, the oracle is faster.

Known: the outputs of PP-OCRv5's detector on inputs without text are below 6e-6, where onnxruntime's
own sigmoid is off by 1e-7. Rows of Tashkeel of Piper are NaN where its input length is 0, and
onnxruntime's ArgMax gives the first place for them. The mask of MediaPipe's pose_landmark_full
reaches 1451, and LiteRT's fast kernels differ from its reference kernels by 4.3 in it. MediaPipe's
face mesh with attention has operators that LiteRT lacks: they are computed in numpy beside it.

{header}
{timed} The seconds of builds depend on what else the machine did.
"""
