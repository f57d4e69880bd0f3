"""`edgekit.Workspace`: a folder, and a method for each verb. The command line stands on it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from edgekit.advice.words import Recommendation, SearchPlan
from edgekit.api.choice import device_for_board
from edgekit.api.keywords import BindingKeywords, BuildKeywords, BundleLike, PathLike, Unpack
from edgekit.api.on_devices import OnDevices
from edgekit.base.errors import InputError, UsageError
from edgekit.base.events import Events
from edgekit.base.options import option
from edgekit.devices.device import Device
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS
from edgekit.models.model import MODEL_SUFFIXES
from edgekit.profiles.board import Board
from edgekit.store.comparing import Comparison
from edgekit.store.results import Evaluations, Listing
from edgekit.store.runs import BenchRun

if TYPE_CHECKING:
    from edgekit.registry.fetch import Fetched
    from edgekit.registry.follower import Follower
    from edgekit.registry.publish import Published
    from edgekit.registry.rollout import Move, Rollout
    from edgekit.registry.tending import Tally, Tended
    from edgekit.verbs.report import ModelReport


class Workspace(OnDevices):
    """A folder with its project file, profiles, devices and store, and what can be done with them.

    `folder` is where edgekit.toml, boards/ and toolchains/ are looked for; relative paths that are
    given to a method start there. `store` is the URL of another store for measurements than the
    project's. `events` is called with each event while a method works: a stage begins, advances or
    ends, a warning. `cancel` is a token with which another thread ends the work.
    """

    def recommend(
        self,
        model: PathLike | None = None,
        boards: Sequence[str | Board] = (),
        *,
        measure: bool = False,
        search: SearchPlan | None = None,
        twin: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        **binding: Unpack[BindingKeywords],
    ) -> Recommendation:
        """List the options for running a model on each board, and which to try first.

        Without boards, for the project's, else for all. `measure` tries every option on a device
        first.
        """
        from edgekit.advice.recommend import Measuring, recommend

        with self._setting.working():
            source, project = self._source(model, binding), self.data.project
            if not boards and project is not None and project.board is not None:
                boards = (project.board,)
            if measure and not boards:
                raise UsageError(
                    f"{option('measure')} needs a board", hint=f"add {option('board', 'NAME')}"
                )

            def reach(board: Board, events: Events) -> Device:
                emulated = twin and not board.is_host
                return device_for_board(self._setting, board, twin=emulated, timeout=timeout)

            return recommend(
                self.data,
                source,
                boards,
                measuring=Measuring(reach, search) if measure else None,
                events=self._setting.events,
            )

    def publish(
        self,
        bundle: BundleLike,
        address: str,
        *,
        key: str | None = None,
        plain_http: bool = False,
    ) -> Published:
        """Put a bundle into an OCI registry, signed: `oci://HOST[:PORT]/NAME:TAG`.

        Blobs that the registry has are not sent again. `key` is the name of one of the user's keys;
        the only one by default. `plain_http` allows a registry elsewhere to have no TLS.
        """
        from edgekit.registry.address import parse_address
        from edgekit.registry.keys import signing_key
        from edgekit.registry.publish import publish

        with self._setting.working():
            place, signs = parse_address(address), signing_key(key)
            opened, events = self._setting.bundle(bundle), self._setting.events
            return publish(opened, place, signs, plain_http=plain_http, events=events)

    def fetch(
        self,
        address: str,
        out: PathLike,
        *,
        key: str | None = None,
        board: str | None = None,
        plain_http: bool = False,
    ) -> Fetched:
        """Fetch a bundle from an OCI registry into the folder `out`, and verify it.

        `key` is the publisher's public key: a name, or a file; the only one by default. What this
        key did not sign, what is for another board than `board`, and what is older than what was
        seen before is refused, and nothing is written.
        """
        from edgekit.registry.address import parse_address
        from edgekit.registry.fetch import fetch
        from edgekit.registry.keys import public_key

        with self._setting.working():
            place, verifies = parse_address(address), public_key(key, self.data.start)
            return fetch(
                place,
                self.data.path(out),
                verifies,
                board=board,
                plain_http=plain_http,
                events=self._setting.events,
            )

    def start_rollout(
        self,
        address: str,
        channel: str,
        *,
        waves: str = "1%,10%,100%",
        healthy_after: float | None = None,
        max_failures: str | None = "2%",
        key: str | None = None,
        plain_http: bool = False,
    ) -> Rollout:
        """Begin to give a published bundle to a channel's boards, with the first wave.

        `tend_rollout` goes on to the next wave once one is healthy for `healthy_after` seconds, and
        stops if more than `max_failures` of the boards that reported failed.
        """
        from edgekit.registry.address import parse_address, parse_rollout
        from edgekit.registry.keys import signing_key
        from edgekit.registry.rollout import parse_limits, parse_waves, start_rollout

        with self._setting.working():
            return start_rollout(
                parse_address(address),
                parse_rollout(address.rpartition(":")[0], channel),
                parse_waves(waves),
                signing_key(key),
                limits=parse_limits(healthy_after, max_failures),
                plain_http=plain_http,
                events=self._setting.events,
            )

    def tend_rollout(
        self,
        repository: str,
        channel: str,
        *,
        reports: PathLike | None = None,
        key: str | None = None,
        plain_http: bool = False,
    ) -> Tended:
        """Look at what boards report about a channel's rollout, and go on or stop as it says.

        `reports` is the file of `edgekit rollout collect`.
        """
        from edgekit.registry.address import parse_rollout
        from edgekit.registry.keys import signing_key
        from edgekit.registry.tending import tend_rollout

        with self._setting.working():
            return tend_rollout(
                parse_rollout(repository, channel),
                signing_key(key),
                self._reports(reports),
                plain_http=plain_http,
                events=self._setting.events,
            )

    def rollout_reports(
        self, repository: str, rollout: Rollout, *, reports: PathLike | None = None
    ) -> Tally:
        """Count what boards report about a rollout of a repository."""
        from edgekit.registry.address import parse_rollout
        from edgekit.registry.reports import read_reports
        from edgekit.registry.tending import tally

        place = parse_rollout(repository, rollout.channel)
        return tally(rollout, read_reports(self._reports(reports), place))

    def _reports(self, file: PathLike | None) -> Path:
        from edgekit.registry.reports import default_file

        return default_file() if file is None else self.data.path(file)

    def follower(
        self,
        repository: str,
        channel: str,
        out: PathLike,
        *,
        board: str | Board | None = None,
        key: str | None = None,
        minutes: int = 10,
        report: str | None = None,
        plain_http: bool = False,
    ) -> Follower:
        """Write a folder with what a board needs to follow a channel by itself.

        `key` is the publisher's public key: a name, or a file; the only one by default. The board
        asks every so many `minutes`, and sends what came of it to the URL `report`.
        """
        from edgekit.registry.address import parse_rollout
        from edgekit.registry.follower import write_follower
        from edgekit.registry.keys import public_key

        with self._setting.working():
            place, verifies = parse_rollout(repository, channel), public_key(key, self.data.start)
            profile = self.data.board(board)
            return write_follower(
                place,
                self.data.path(out),
                (profile, self.data.toolchain(profile.toolchain)),
                verifies,
                minutes=minutes,
                report=report,
                plain_http=plain_http,
                events=self._setting.events,
            )

    def move_rollout(
        self,
        repository: str,
        channel: str,
        move: Move,
        *,
        key: str | None = None,
        plain_http: bool = False,
    ) -> Rollout:
        """Change a channel's rollout: "next" wave, "pause", "resume", "stop", or "back"."""
        from edgekit.registry.address import parse_rollout
        from edgekit.registry.keys import signing_key
        from edgekit.registry.rollout import move_rollout

        with self._setting.working():
            place, signs, events = (
                parse_rollout(repository, channel),
                signing_key(key),
                self._setting.events,
            )
            return move_rollout(place, move, signs, plain_http=plain_http, events=events)

    def rollout(
        self, repository: str, channel: str, *, key: str | None = None, plain_http: bool = False
    ) -> Rollout:
        """Read a channel's rollout and verify it. `version_for` says what a board takes."""
        from edgekit.registry.address import parse_rollout
        from edgekit.registry.keys import public_key
        from edgekit.registry.rollout import read_rollout

        with self._setting.working():
            place = parse_rollout(repository, channel)
            return read_rollout(place, public_key(key, self.data.start), plain_http=plain_http)

    def results(
        self,
        *,
        model: str | None = None,
        board: str | None = None,
        device: str | None = None,
        last: int = 20,
    ) -> Listing:
        """List the benchmark runs of the store, the latest first."""
        from edgekit.store.bench_runs import RunFilter
        from edgekit.store.results import list_results

        return list_results(RunFilter(model, board, device, last), self.data.store)

    def accuracy(
        self,
        *,
        model: str | None = None,
        board: str | None = None,
        device: str | None = None,
        last: int = 20,
    ) -> Evaluations:
        """List the evaluations of the store, the latest first."""
        from edgekit.store.bench_runs import RunFilter
        from edgekit.store.results import list_accuracy

        return list_accuracy(RunFilter(model, board, device, last), self.data.store)

    def result(self, run: str = "latest") -> BenchRun:
        """Return one run with its samples: by its id, a prefix of it, or the latest."""
        from edgekit.store.results import show_result

        return show_result(run, self.data.store)

    def report(self, subject: BundleLike = "latest", **how: Unpack[BuildKeywords]) -> ModelReport:
        """Put all that is known about a bundle, a model or a stored run into one report.

        `subject` is a bundle, the path of a bundle or of a model, a run's id, a prefix of it, or
        "latest". `how` decides about a model as `build` does.
        """
        from edgekit.bundle.folder import Bundle, looks_like_a_bundle
        from edgekit.verbs.report import report_bundle, report_model, report_run

        given = {key: value for key, value in how.items() if value}
        store = self.data.store
        if isinstance(subject, Bundle) or looks_like_a_bundle(self.data.path(subject)):
            _refuse_build_options(given, "a bundle")
            return report_bundle(self._setting.bundle(subject), store)
        path = self.data.path(subject)
        if path.exists() or path.suffix.lower() in MODEL_SUFFIXES:
            return report_model(self.partitioned(subject, **how), store)
        if len(PurePath(subject).parts) > 1:
            raise InputError(
                f"there is no bundle and no model at {path}",
                hint="`edgekit build` makes a bundle; `edgekit results list` shows runs",
            )
        _refuse_build_options(given, "a run")
        return report_run(str(subject), store)

    def compare(self, before: str = "previous", after: str = "latest") -> Comparison:
        """Compare two runs: ids, or "previous" or "best" among the runs before `after`."""
        from edgekit.store.results import compare_results

        return compare_results(before, after, self.data.store)


def _refuse_build_options(given: Mapping[str, object], subject: str) -> None:
    if given:
        raise UsageError(
            f"{option(next(iter(given)))} decides about a model, and this is a report of {subject}",
            hint="leave it out, or name a model file",
        )
