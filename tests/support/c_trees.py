"""Small models in C, in the form that edgekit writes them: what firmware and lines are tried on."""

from __future__ import annotations

from pathlib import Path

_HEADER = """\
#ifndef {upper}_H
#define {upper}_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif
#define {upper}_MODEL "{name} of the tests"
#define {upper}_SHA256 "{sha}"
#define {upper}_ARENA_BYTES {arena}
#define {upper}_ARENA_ALIGNMENT 16
#define {upper}_INPUTS 1
#define {upper}_OUTPUTS 1
#define {upper}_STEPS 2
#define {upper}_INPUT_0_NAME "x"
#define {upper}_INPUT_0_BYTES {bytes}
#define {upper}_INPUT_0_ELEMENTS {bytes}
#define {upper}_INPUT_0_DTYPE "int8"
#define {upper}_INPUT_0_OFFSET 0
#define {upper}_OUTPUT_0_NAME "y"
#define {upper}_OUTPUT_0_BYTES {bytes}
#define {upper}_OUTPUT_0_ELEMENTS {bytes}
#define {upper}_OUTPUT_0_DTYPE "int8"
#define {upper}_OUTPUT_0_OFFSET 0
typedef struct {{ const int8_t *x; }} {name}_inputs;
typedef struct {{ int8_t *y; }} {name}_outputs;
int {name}_check(void);
int {name}_run(const {name}_inputs *inputs, const {name}_outputs *outputs, void *arena);
int {name}_run_step(unsigned step, const {name}_inputs *inputs, const {name}_outputs *outputs,
                    void *arena);
const char *{name}_step_name(unsigned step);
#ifdef __cplusplus
}}
#endif
#endif
"""

_SOURCE = """\
#include "{name}.h"
static const int8_t weights[{weights}] = {{{factor}}};
__attribute__((noinline)) static void triple(int8_t *data) {{
  const int8_t *volatile kept = weights;
  const int8_t factor = kept[0];
  for (int i = 0; i < {bytes}; i++) {{
    data[i] = (int8_t)(data[i] * factor);
  }}
}}
__attribute__((noinline)) static void more(int8_t *data) {{
  for (int i = 0; i < {bytes}; i++) {{
    data[i] = (int8_t)(data[i] + 1);
  }}
  {also}
}}
int {name}_check(void) {{ return 0; }}
int {name}_run_step(unsigned step, const {name}_inputs *inputs, const {name}_outputs *outputs,
                    void *arena) {{
  int8_t *data = (int8_t *)arena;
  (void)inputs;
  (void)outputs;
  if (step == 0u) {{
    triple(data);
  }} else {{
    more(data);
  }}
  return 0;
}}
int {name}_run(const {name}_inputs *inputs, const {name}_outputs *outputs, void *arena) {{
  {name}_run_step(0u, inputs, outputs, arena);
  return {name}_run_step(1u, inputs, outputs, arena);
}}
const char *{name}_step_name(unsigned step) {{ return step == 0u ? "triple" : "more"; }}
"""


def write_c_tree(
    folder: Path,
    name: str = "toy",
    *,
    factor: int = 3,
    count: int = 3000,
    arena: int | None = None,
    weights: int = 64,
    also: str = "",
) -> Path:
    """y = factor * x + 1 of `count` int8, in place; `also` is C that the second step does too."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "name": name,
        "upper": name.upper(),
        "sha": f"{factor:064x}",
        "bytes": count,
        "arena": arena or count,
        "factor": factor,
        "weights": weights,
        "also": also,
    }
    (folder / f"{name}.h").write_text(_HEADER.format(**values), encoding="utf-8")
    (folder / f"{name}.c").write_text(_SOURCE.format(**values), encoding="utf-8")
    return folder
