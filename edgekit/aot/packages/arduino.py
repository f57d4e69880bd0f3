"""arduino/NAME.zip: a library for Arduino, with a sketch that runs the reference input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit.aot.c_text import C_TYPES
from edgekit.aot.packages.compiled import CompiledTree, copy_into, write_text
from edgekit.aot.packages.formats import PACKAGE_VERSION
from edgekit.aot.write_test import allowed_difference
from edgekit.base.quoting import c_comment, one_line
from edgekit.base.tensors import TensorSpec
from edgekit.bundle.archive import write_zip

ARDUINO_FOLDER = "arduino"
_COMPARE = """\
static bool compare_{type}(const char *name, const {type} *expected, const {type} *actual,
                           long count, double rtol, double of_max, double atol) {
  double largest = 0.0, worst = 0.0;
  long wrong = 0;
  for (long i = 0; i < count; ++i) {
    const double size = fabs((double)expected[i]);
    if (isfinite(size) && size > largest) largest = size;
  }
  for (long i = 0; i < count; ++i) {
    const double want = (double)expected[i], got = (double)actual[i];
    if (want == got || (isnan(want) && isnan(got))) continue;
    const double error = fabs(want - got);
    if (!(error <= worst)) worst = error;
    if (!(error <= rtol * fabs(want) + of_max * largest + atol)) ++wrong;
  }
  Serial.print(name);
  Serial.print(": largest ");
  Serial.print(largest, 6);
  Serial.print(", worst error ");
  Serial.print(worst, 6);
  Serial.println(wrong == 0 ? ": ok" : ": WRONG");
  return wrong == 0;
}
"""


def write_arduino_library(compiled: CompiledTree, folder: Path, scratch: Path) -> tuple[str, ...]:
    """Write the library. Arduino compiles everything below src/ and looks for headers in src/
    itself, so headers that third-party sources include from other folders are placed there."""
    inside, name = scratch / "arduino", compiled.name
    root = inside / name
    for path in compiled.files(is_source):
        copy_into(compiled.tree.folder / path, root / "src" / place(path, compiled.tree.includes))
    for path in ("README.md", *compiled.licenses):
        copy_into(compiled.tree.folder / path, root / path)
    example = root / "examples" / name
    write_text(root / "library.properties", _properties(compiled))
    write_text(example / f"{name}.ino", _sketch(compiled))
    copy_into(compiled.tree.folder / "test/vectors.h", example / "vectors.h")
    paths = sorted(path for path in inside.rglob("*") if path.is_file())
    made = f"{ARDUINO_FOLDER}/{name}.zip"
    (folder / ARDUINO_FOLDER).mkdir()
    write_zip(inside, [path.relative_to(inside).as_posix() for path in paths], folder / made)
    return (made,)


def is_source(path: str) -> bool:
    """Return whether a path of the tree is a source of the model."""
    return path.endswith((".c", ".h")) and not path.startswith("test/")


def place(path: str, includes: Sequence[str]) -> str:
    """Return a header's path without its include folder; any other path unchanged."""
    for include in includes:
        if path.endswith(".h") and path.startswith(f"{include}/"):
            return path.removeprefix(f"{include}/")
    return path


def _properties(compiled: CompiledTree) -> str:
    name, origin = compiled.name, compiled.tree.origin
    return f"""\
name={name}
version={PACKAGE_VERSION}
author=edgekit
maintainer=edgekit
sentence=The model {one_line(origin.model)} as C, made by edgekit.
paragraph=For boards with a {one_line(origin.cpu)}. Model of SHA-256 {compiled.model_sha256}.
category=Data Processing
url=
architectures=*
includes={name}.h
"""


def _sketch(compiled: CompiledTree) -> str:
    name, tree = compiled.name, compiled.tree
    macros = name.upper()
    kinds = dict.fromkeys(C_TYPES[spec.dtype] for spec in tree.outputs)
    inputs = ", ".join(f"input_{k}" for k in range(len(tree.inputs))) or "NULL"
    outputs = ", ".join("NULL" for _ in tree.outputs) or "NULL"
    lines = [
        f"// {c_comment(tree.origin.model)}: run the reference inputs through the model, and",
        "// compare the outputs with those that another runtime computed.",
        "#include <Arduino.h>",
        "#include <math.h>",
        "",
        f"#include <{name}.h>",
        "",
        '#include "vectors.h"',
        "",
        f"static unsigned char arena[{macros}_ARENA_BYTES]",
        f"    __attribute__((aligned({macros}_ARENA_ALIGNMENT)));",
        "",
        *(_COMPARE.replace("{type}", kind) for kind in kinds),
        "void setup() {",
        "  Serial.begin(115200);",
        "  while (!Serial && millis() < 5000) {",
        "  }",
        f"  if ({name}_check() != 0) {{",
        '    Serial.println("the library was compiled for another CPU");',
        "    return;",
        "  }",
        f"  const {name}_inputs in = {{{inputs}}};",
        "  // NULL: the outputs stay in the arena.",
        f"  const {name}_outputs out = {{{outputs}}};",
        "  const unsigned long began = micros();",
        f"  {name}_run(&in, &out, arena);",
        "  const unsigned long took = micros() - began;",
        "  Serial.print(took);",
        '  Serial.println(" us");',
        "  bool right = true;",
        *_comparisons(macros, tree.outputs),
        '  Serial.println(right ? "all as expected" : "NOT as expected");',
        "}",
        "",
        "void loop() {}",
        "",
    ]
    return "\n".join(lines)


def _comparisons(macros: str, outputs: Sequence[TensorSpec]) -> Iterator[str]:
    for k, spec in enumerate(outputs):
        kind, macro = C_TYPES[spec.dtype], f"{macros}_OUTPUT_{k}"
        yield f"  right &= compare_{kind}({macro}_NAME, expected_{k},"
        yield f"      (const {kind} *)(const void *)(arena + {macro}_OFFSET), {macro}_ELEMENTS,"
        yield f"      {allowed_difference(spec, k)});"
