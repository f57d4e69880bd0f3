"""A module of WebAssembly: a program without a runtime and without imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.base.wording import size
from edgekit.building.product import Words
from edgekit.building.products.library import Library

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import Manifest


class WasmModule(Library):
    in_words = "a WebAssembly module"
    tuning_pays = False
    probe_flags: tuple[str, ...] = ("-mexec-model=reactor",)

    def weight_bytes(self, bundle: Bundle) -> int:
        return 0

    def size_in_words(self, manifest: Manifest, weight_bytes: int) -> Words:
        module = sum(file.size for file in manifest.files if file.role == "library")
        return [("module", f"{size(module)}, weights included")]
