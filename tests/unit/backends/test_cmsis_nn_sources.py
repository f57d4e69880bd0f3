"""CMSIS-NN is found where it is said to be, and only what is needed is taken."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from edgekit.backends.cmsis_nn.sources import VARIABLE, find_cmsis_nn, read_cmsis_nn
from edgekit.base.errors import MissingToolError, ProjectError

HEADER = '#include "arm_nn_types.h"\n#include "cmsis_compiler.h"\n/* $Revision: V.9.1.0 */\n'
CONVOLVE = """\
#include "arm_nnfunctions.h"
/* int arm_unused(void) { */
int32_t arm_convolve_s8(const int8_t *data,
                        int32_t n)
{
    return arm_requantize(data[0], n);
}
"""
REQUANTIZE = (
    '#include "arm_nnsupport.h"\nint32_t arm_requantize(int32_t a, int32_t b)\n{ return a; }\n'
)
FILES = {
    "NN/Include/arm_nnfunctions.h": HEADER,
    "NN/Include/arm_nn_types.h": "typedef int arm_type;\n",
    "NN/Include/arm_nnsupport.h": "",
    "NN/Include/arm_lstm.h": "",
    "NN/Source/Convolution/arm_convolve_s8.c": CONVOLVE,
    "NN/Source/Support/arm_requantize.c": REQUANTIZE,
    "NN/Source/Softmax/arm_softmax_s8.c": "void arm_softmax_s8(void)\n{\n}\n",
    "NN/LICENSE": "Apache",
    "Core/Include/cmsis_compiler.h": '#include "cmsis_gcc.h"\n',
    "Core/Include/cmsis_gcc.h": "",
    "Driver/secret.h": "",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "CMSIS" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "CMSIS"


def test_a_function_takes_the_sources_that_it_calls_and_their_headers_alone(checkout: Path) -> None:
    found = read_cmsis_nn(checkout, "here")
    sources = found.sources_of(["arm_convolve_s8"])
    assert sources == (
        "Source/Convolution/arm_convolve_s8.c",
        "Source/Support/arm_requantize.c",
    )
    assert sorted(found.with_headers(sources)) == [
        "Core/cmsis_compiler.h",
        "Core/cmsis_gcc.h",
        "Include/arm_nn_types.h",
        "Include/arm_nnfunctions.h",
        "Include/arm_nnsupport.h",
        *sources,
    ]
    assert found.license_text == "Apache"
    assert "arm_unused" not in found.definitions


def test_a_pack_is_read_without_being_unpacked(checkout: Path, tmp_path: Path) -> None:
    pack = tmp_path / "ARM.CMSIS-NN.7.0.0.pack"
    with zipfile.ZipFile(pack, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(f"CMSIS/{name}", text)
        archive.writestr("ARM.CMSIS-NN.pdsc", '<release version="7.0.0" date="x">')
    found, folder = read_cmsis_nn(pack, "pack"), read_cmsis_nn(checkout, "folder")
    assert found.files == folder.files
    assert found.version == "7.0.0" and found.major == 7
    assert "9.1.0" in folder.version


def test_the_identity_changes_with_a_source(checkout: Path) -> None:
    before = read_cmsis_nn(checkout, "here").identity
    (checkout / "NN/Source/Support/arm_requantize.c").write_text(REQUANTIZE + "/* patched */\n")
    assert read_cmsis_nn(checkout, "here").identity != before


def test_the_environment_comes_before_the_package(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(checkout))
    assert VARIABLE in find_cmsis_nn().origin
    assert find_cmsis_nn(checkout / "NN" / "..").origin == str(checkout / "NN" / "..")
    monkeypatch.delenv(VARIABLE)
    assert find_cmsis_nn().version == "4.0.0"


def test_what_is_missing_is_said(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProjectError, match="does not exist"):
        read_cmsis_nn(tmp_path / "nowhere", "nowhere")
    with pytest.raises(ProjectError, match=r"has no Include/arm_nnfunctions\.h"):
        read_cmsis_nn(checkout / "Core", "core alone")
    with pytest.raises(ProjectError, match=r"has no cmsis_compiler\.h"):
        read_cmsis_nn(checkout / "NN", "without core")
    broken = tmp_path / "broken.pack"
    broken.write_bytes(b"no archive")
    with pytest.raises(ProjectError, match=r"is no CMSIS-Pack"):
        read_cmsis_nn(broken, "broken")
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("edgekit.backends.cmsis_nn.sources.find_spec", lambda name: None)
    with pytest.raises(MissingToolError) as missing:
        find_cmsis_nn()
    assert VARIABLE in missing.value.hint


def test_a_source_of_gigabytes_is_refused(checkout: Path) -> None:
    with (checkout / "NN/Source/huge.c").open("wb") as stream:
        stream.truncate(3 << 20)
    with pytest.raises(ProjectError, match="too many for a source"):
        read_cmsis_nn(checkout, "here")


def test_links_out_of_the_folder_are_not_followed(checkout: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.h"
    outside.write_text("secret")
    (checkout / "NN/Include/arm_link.h").symlink_to(outside)
    assert "Include/arm_link.h" not in read_cmsis_nn(checkout, "here").files
