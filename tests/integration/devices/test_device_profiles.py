"""A device remembers the profile of its board, and works from every folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.base.errors import ProfileError
from edgekit.base.events import Event, Events, Warned
from edgekit.base.paths import built_in_profiles
from edgekit.cli.program import run_command_line
from edgekit.devices.registry import find_device, known_devices
from edgekit.farm.plan import plan_farm
from edgekit.profiles.reader import trust_profile
from edgekit.project.user_devices import devices_file
from edgekit.project.workspace import open_workspace
from edgekit.rpc.protocol import DEFAULT_PORT

Edgekit = Callable[..., str]


@pytest.fixture
def edgekit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Edgekit:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("one", "two"):
        (tmp_path / name / "deeper").mkdir(parents=True)

    def run(folder: str, *words: str, code: int = 0) -> str:
        monkeypatch.chdir(tmp_path / folder)
        assert run_command_line(words) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return run


def own_board(folder: Path, name: str = "wingboard") -> Path:
    """Make a profile of the folder's own, which its user trusts."""
    text = (built_in_profiles("boards") / "stm32f405.toml").read_text()
    profile = folder / "boards" / f"{name}.toml"
    profile.parent.mkdir(exist_ok=True)
    profile.write_text(text.replace('name = "stm32f405"', f'name = "{name}"', 1))
    trust_profile(profile, "boards")
    return profile


@pytest.fixture
def profile(edgekit: Edgekit, tmp_path: Path) -> Path:
    """The entry of a device `wing` that was added in the folder `one`."""
    made = own_board(tmp_path / "one")
    edgekit("one", "device", "add", "wing", "--board", "wingboard", "--port", "/dev/ttyACM7")
    edgekit("one", "device", "add", "other", "--board", "stm32f405", "--port", "/dev/ttyACM8")
    return made


def test_it_is_used_from_another_folder(edgekit: Edgekit, profile: Path) -> None:
    listed = json.loads(edgekit("two", "device", "list", "--json"))
    assert [(one["name"], one["profile"], one["problem"]) for one in listed] == [
        ("wing", str(profile), None),
        ("other", None, None),
    ]
    data = open_workspace()
    assert find_device("wing", known_devices(None)).board(data.folder).origin == profile
    assert data.board("wingboard").origin == profile  # what `--board wingboard` names
    assert [member.name for member in plan_farm(None, (), DEFAULT_PORT).members] == [
        "wing",
        "other",
    ]


def test_a_change_of_the_profile_is_told(edgekit: Edgekit, profile: Path) -> None:
    profile.write_text(profile.read_text() + "\n# another revision of the board\n")
    assert "wing: the profile of wing has changed" in edgekit("two", "device", "list")
    trust_profile(profile, "boards")
    told: list[Event] = []
    find_device("wing", known_devices(None)).board(None, Events(told.append))
    assert [event.text for event in told if isinstance(event, Warned)] == [
        f"the profile of wing has changed since it was added: {profile}; "
        "edgekit device add wing --force --board wingboard … remembers it"
    ]


def test_a_profile_that_is_gone_is_the_reason_of_one_device(
    edgekit: Edgekit, profile: Path
) -> None:
    profile.unlink()
    shown = edgekit("two", "device", "list")
    assert "/dev/ttyACM8" in shown
    assert f"wing: the profile of wing is gone: {profile}" in " ".join(shown.split())
    wing = find_device("wing", known_devices(None))
    with pytest.raises(ProfileError, match="the profile of wing is gone"):
        wing.board(None)
    error = edgekit("two", "device", "check", "wing", code=3)
    assert "the profile of wing is gone" in error
    assert "device add wing --force" in error
    members = {member.name for member in plan_farm(None, (), DEFAULT_PORT).members}
    assert members == {"wing", "other"}  # the farm shows the reason


def test_a_device_of_an_earlier_version_without_its_profile_is_listed(
    edgekit: Edgekit, tmp_path: Path
) -> None:
    devices_file().parent.mkdir(parents=True)
    devices_file().write_text(
        "schema = 1\n"
        '[devices.wing]\nboard = "wingboard"\nserial = "/dev/ttyACM7"\n'
        '[devices.kitchen]\nboard = "rpi4"\nhost = "kitchen"\n'
    )
    wing, kitchen = json.loads(edgekit("two", "device", "list", "--json"))
    assert "there is no board called 'wingboard'" in wing["problem"].replace('"', "'")
    assert kitchen["problem"] is None
    assert len(plan_farm(None, (), DEFAULT_PORT).members) == 2
    own_board(tmp_path / "one")
    wing, _ = json.loads(edgekit("one", "device", "list", "--json"))
    assert wing["problem"] is None


def test_a_projects_device_has_its_profile_in_subfolders_too(
    edgekit: Edgekit, tmp_path: Path
) -> None:
    made = own_board(tmp_path / "one")
    (tmp_path / "one" / "edgekit.toml").write_text(
        'schema = 1\n[devices.wing]\nboard = "wingboard"\nserial = "/dev/ttyACM7"\n'
    )
    edgekit("one", "trust")
    (wing,) = json.loads(edgekit("one/deeper", "device", "list", "--json"))
    assert wing["problem"] is None
    data = open_workspace()
    assert data.board("wingboard").origin == made
    assert find_device("wing", known_devices(data.project)).board(data.folder).origin == made
