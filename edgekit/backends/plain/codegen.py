"""The C++ of a region that is a program: its lines, its weights, and the library's runner."""

from __future__ import annotations

from edgekit.backends.base import GeneratedRegion, Region
from edgekit.backends.plain.program import program_of
from edgekit.backends.source import region_source


def generate_program(region: Region, header: str, runner: str, settings: str) -> GeneratedRegion:
    """Generate a region. `runner` is a class of the header that takes the program and these
    settings, and reports the bytes that it copies."""
    program = program_of(region)
    blobs = {"weights": program.weights} if program.weights else {}
    weights = "weights" if blobs else "edgekit::Blob{nullptr, 0}"
    source = f"""\
const char* const program[] = {{
{program.literals}
}};

class Region : public {runner} {{
 public:
  Region()
      : Runner(edgekit::Program(program, sizeof(program) / sizeof(program[0]), {weights}),
               {settings}) {{}}
}};
"""
    whole = region_source(region, (header,), source, "Region", blobs)
    counter = f"\nEDGEKIT_COPIED({region.symbol}, Region)\n"
    return GeneratedRegion(region.symbol, region.backend, whole + counter, blobs)
