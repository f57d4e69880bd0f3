"""What several modules share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.libraries import share_libraries


@pytest.fixture(scope="session")
def twin_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for twins and agents: whoever needs an image second finds it built. Libraries are
    those of the user's own cache."""
    cache = tmp_path_factory.mktemp("twin-cache")
    share_libraries(cache)
    return cache
