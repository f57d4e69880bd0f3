"""What several modules share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.libraries import share_libraries
from support.twins import share_images


@pytest.fixture(scope="session")
def twin_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for twins and agents. The image and libraries are those of the user's own cache."""
    cache = tmp_path_factory.mktemp("twin-cache")
    share_images(cache)
    share_libraries(cache)
    return cache
