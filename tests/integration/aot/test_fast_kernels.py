"""Kernels in DSP and vector instructions, on emulated processors that have them, give exactly what
the portable ones give on this machine, which test_integer_operators compares with LiteRT."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.cortex_m import PROCESSORS, run_on
from support.examples import first_of, one_of
from support.fast_kernels import CPUS, cases, layers, program
from support.needs import CORTEX_M, needs

from edgekit.aot.generators import DSP, MVE
from edgekit.aot.kernel import Declined, Generator
from edgekit.aot.operators import Add, Conv2D, FullyConnected
from edgekit.aot.program import Step
from edgekit.backends.cmsis_nn.generator import CmsisNnGenerator
from edgekit.backends.cmsis_nn.sources import find_cmsis_nn

pytestmark = needs(*CORTEX_M)

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")


def check(
    processor: str,
    generator: Generator,
    seed: int,
    flags: tuple[str, ...],
    folder: Path,
    any_way: bool = False,
) -> None:
    made = layers(seed, 40)
    batch = [*cases(made, generator, CPUS[processor], seed, folder, any_way=any_way)]
    assert len(batch) > 10
    run_on(processor, {"batch.c": program(batch)}, flags=flags)


@pytest.mark.parametrize("seed", one_of(0, 1, 2))
def test_dsp_kernels_are_exact(seed: int, tmp_path: Path) -> None:
    check("m4", DSP, seed, ("-O2", *WARNINGS), tmp_path)


@pytest.mark.parametrize("seed", one_of(0, 1, 2))
def test_vector_kernels_are_exact(seed: int, tmp_path: Path) -> None:
    check("m55", MVE, 100 + seed, ("-O2", *WARNINGS), tmp_path)


@pytest.mark.parametrize("seed", one_of(20, 21, 22))
@pytest.mark.parametrize("processor", ["m4", "m55"])
def test_they_are_exact_whichever_way_they_are_made(
    processor: str, seed: int, tmp_path: Path
) -> None:
    generator = MVE if processor == "m55" else DSP
    check(processor, generator, seed, ("-O3", *WARNINGS), tmp_path, any_way=True)


@pytest.mark.parametrize("level", first_of("-O3", "-O0", "-Os"))
@pytest.mark.parametrize("processor", ["m4", "m33", "m55"])
def test_they_are_exact_however_they_are_compiled(
    processor: str, level: str, tmp_path: Path
) -> None:
    generator = MVE if processor == "m55" else DSP
    check(processor, generator, 7, (level,), tmp_path)


@pytest.mark.parametrize("processor", ["m4", "m33", "m55"])
def test_they_compile_as_cpp_without_a_warning(processor: str, tmp_path: Path) -> None:
    generator = MVE if processor == "m55" else DSP
    batch = [*cases(layers(3, 16), generator, CPUS[processor], 3, tmp_path)]
    source = tmp_path / "batch.cc"
    source.write_text(program(batch), encoding="utf-8")
    command = ["arm-none-eabi-g++", "-std=c++17", "-mthumb", *PROCESSORS[processor].flags]
    command += [*WARNINGS, "-O2", "-c", str(source), "-o", str(tmp_path / "batch.o")]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("processor", ["m4", "m55"])
def test_cmsis_nn_is_exact_and_has_enough_scratch(processor: str, tmp_path: Path) -> None:
    library = find_cmsis_nn()
    batch = [*cases(layers(5, 40), CmsisNnGenerator(library), CPUS[processor], 5, tmp_path)]
    assert len(batch) > 10
    checks = [check for case in batch for check in case.kernel.checks]
    assert checks
    asserted = "".join(f"    if (!({check})) {{ return 77; }}\n" for check in checks)
    text = program(batch).replace("    int wrong = 0;", f"    int wrong = 0;\n{asserted}")
    sources = {path for case in batch for path in case.kernel.library_sources}
    files = library.with_headers(sources)
    for path, content in files.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    (tmp_path / "batch.c").write_text(text, encoding="utf-8")
    run_on(
        processor,
        [tmp_path / "batch.c", *(tmp_path / path for path in sorted(sources))],
        includes=[tmp_path / "Include", tmp_path / "Core"],
    )


def test_processors_without_the_instructions_are_declined() -> None:
    step = Step("step", layers(0, 1)[0], (0,), (1,), ())
    for generator in (DSP, MVE):
        bare = CPUS["m4"].__class__("Cortex-M0+", "cortex-m", (), 1)
        assert isinstance(generator.offer(step, bare), Declined)


def test_cmsis_nn_says_what_it_lacks_and_what_is_not_exact() -> None:
    generator = CmsisNnGenerator(find_cmsis_nn())
    made = layers(1, 40)
    reasons = {}
    for kind in (Add, FullyConnected):
        operator = next(entry for entry in made if isinstance(entry, kind))
        offer = generator.offer(Step("step", operator, (0,), (1,), ()), CPUS["m4"])
        assert isinstance(offer, Declined)
        reasons[kind] = offer.reason
    assert "4.0.0" in reasons[Add] and "arm_elementwise_add_s8" in reasons[Add]
    assert "rounds" in reasons[FullyConnected]


def test_estimates_are_good_enough_to_choose_by(tmp_path: Path) -> None:
    """Estimates of real layers are within a factor of two of what the processor counts."""
    for processor, generator in (("m4", DSP), ("m55", MVE)):
        made = [layer for layer in layers(11, 400) if _is_large(layer)][:12]
        batch = [*cases(made, generator, CPUS[processor], 11, tmp_path)]
        text = program(batch)
        for case in batch:
            call = f"    {case.step.name}("
            counted = f"    count_begin();\n{call}"
            text = text.replace(call, counted, 1)
            head, _, rest = text.partition(counted)
            line, _, rest = rest.partition("\n")
            text = f'{head}{counted}{line}\n    count_end("{case.step.name}");\n{rest}'
        ran = run_on(processor, {"batch.c": '#include "harness.h"\n' + text}, flags=("-O3",))
        for case in batch:
            assert case.kernel.instructions is not None
            ratio = case.kernel.instructions / ran.instructions[case.step.name]
            assert 0.5 < ratio < 2, (case.step.operator, ratio)


def _is_large(layer: object) -> bool:
    if not isinstance(layer, Conv2D):
        return False
    return layer.result.elements > 200 and layer.weights.size > 300
