"""Large weights on large pages: what ncnn's allocations become in a region's library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.needs import needs

import edgekit.backends.ncnn

HEADER = Path(edgekit.backends.ncnn.__file__).parent / "include" / "edgekit_ncnn_pages.h"
PROGRAM = f"""
#include "{HEADER}"
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

// The flags of the mapping that an address is in.
std::string flags_of(const void* memory) {{
  std::ifstream maps("/proc/self/smaps");
  const uintptr_t wanted = reinterpret_cast<uintptr_t>(memory);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {{
    unsigned long first, last;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2)
      here = first <= wanted && wanted < last;
    if (here && line.compare(0, 8, "VmFlags:") == 0) return line + " ";
  }}
  return "";
}}

extern "C" int pages() {{
  int wrong = 0;
  for (size_t size : {{size_t{{1}}, size_t{{4096}}, size_t{{3}} << 20, size_t{{9}} << 20}}) {{
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, size) != 0) return 100;
    std::memset(memory, 7, size);
    const bool large = flags_of(memory).find(" hg ") != std::string::npos;
    wrong += large != (size >= (size_t{{4}} << 20)) || reinterpret_cast<uintptr_t>(memory) % 64;
    std::free(memory);
  }}
  void* none = nullptr;
  wrong += posix_memalign(&none, 64, ~size_t{{0}} / 2) != ENOMEM || none != nullptr;
  return wrong;
}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "pages.cc").write_text(PROGRAM, encoding="utf-8")
    command = ["c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "pages.cc", "-o", "pages.so"], cwd=folder, check=True)
    return folder / "pages.so"


@needs("large-pages")
def test_large_allocations_ask_for_large_pages_and_small_ones_do_not(library: Path) -> None:
    call = f"import ctypes; raise SystemExit(ctypes.CDLL({str(library)!r}).pages())"
    subprocess.run([sys.executable, "-c", call], check=True)


def test_nobody_else_s_allocations_change(library: Path) -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    assert " pages" in symbols
    assert "posix_memalign" not in symbols
