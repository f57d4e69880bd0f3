"""Data that was once not refused as it should be. It lies as hexadecimal text, and is tried in
every run of the tests."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parent / "crashes"
_WIDTH = 96


def keep_crash(target: str, data: bytes) -> Path:
    """Write the data that a target fell over; the file's name begins with the target's."""
    text = data.hex()
    lines = [text[start : start + _WIDTH] for start in range(0, len(text), _WIDTH)]
    path = FOLDER / f"{target.replace(' ', '-')}--{sha256(data).hexdigest()[:12]}.hex"
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path


def crashes_of(target: str) -> dict[str, bytes]:
    """What was kept of a target, by the file's name."""
    return {
        path.name: bytes.fromhex(path.read_text(encoding="ascii"))
        for path in sorted(FOLDER.glob(f"{target.replace(' ', '-')}--*.hex"))
    }
