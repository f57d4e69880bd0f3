"""ncnn itself, built through the recipe for this machine and for an emulated board's CPU."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.emulated_arm import arm_emulator
from support.libraries import ncnn_layers
from support.needs import ARM_PROGRAMS, needs

from edgekit.cross.sources import BuiltLibrary, build_library, built_in_recipe
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

pytestmark = [
    pytest.mark.slow,
]

CONVOLUTION = r"""
#include <ncnn/layer.h>
#include <ncnn/net.h>
#include <cmath>
#include <cstdio>

// A 3x3 convolution by ncnn and by seven loops; prints the largest difference.
int main() {
  const int in_channels = 8, out_channels = 16, size = 17;
  const int weight_count = out_channels * in_channels * 9;
  double worst = 0;
  for (int threads = 1; threads <= 2; ++threads) {
    ncnn::Option option;
    option.num_threads = threads;
    option.use_packing_layout = false;
    option.use_fp16_packed = option.use_fp16_storage = option.use_fp16_arithmetic = false;
    ncnn::Layer* layer = ncnn::create_layer("Convolution");
    ncnn::ParamDict settings;
    settings.set(0, out_channels);
    settings.set(1, 3);
    settings.set(5, 1);
    settings.set(6, weight_count);
    layer->load_param(settings);
    ncnn::Mat weights(weight_count), bias(out_channels), input(size, size, in_channels), output;
    for (int i = 0; i < weight_count; ++i) weights[i] = std::sin(i * 1.3f);
    for (int i = 0; i < out_channels; ++i) bias[i] = i * 0.1f;
    for (int c = 0; c < in_channels; ++c)
      for (int i = 0; i < size * size; ++i) input.channel(c)[i] = std::cos(i * 0.7f + c);
    ncnn::Mat both[] = {weights, bias};
    layer->load_model(ncnn::ModelBinFromMatArray(both));
    layer->create_pipeline(option);
    if (layer->forward(input, output, option) != 0) return 2;
    for (int o = 0; o < out_channels; ++o)
      for (int y = 0; y < output.h; ++y)
        for (int x = 0; x < output.w; ++x) {
          double sum = bias[o];
          for (int c = 0; c < in_channels; ++c)
            for (int i = 0; i < 3; ++i)
              for (int j = 0; j < 3; ++j)
                sum += double(weights[((o * in_channels + c) * 3 + i) * 3 + j]) *
                       input.channel(c).row(y + i)[x + j];
          worst = std::fmax(worst, std::fabs(sum - output.channel(o).row(y)[x]));
        }
    layer->destroy_pipeline(option);
    delete layer;
  }
  std::printf("%g\n", worst);
}
"""
EVERY_LAYER = """
#include <ncnn/layer.h>
#include <cstdio>
int main(int count, char** names) {
  for (int i = 1; i < count; ++i) {
    ncnn::Layer* layer = ncnn::create_layer(names[i]);
    if (layer == nullptr) std::printf("%s\\n", names[i]);
    delete layer;
  }
}
"""


def ncnn_for(board_name: str) -> BuiltLibrary:
    """Out of the user's own cache where it is there: a build takes some minutes."""
    board = load_board(board_name)
    return build_library(built_in_recipe("ncnn"), board, load_toolchain(board.toolchain))


def program(board_name: str, source: str, folder: Path) -> Path:
    library = ncnn_for(board_name)
    toolchain = load_toolchain(load_board(board_name).toolchain)
    (folder / "main.cc").write_text(source)
    subprocess.run(
        [
            *find_cxx_compiler(toolchain).command,
            *("-O1", "-std=c++17", *(f"-I{path}" for path in library.include)),
            *(str(folder / "main.cc"), *library.link, "-o", str(folder / "main")),
        ],
        check=True,
    )
    return folder / "main"


def said(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_ncnn_for_this_machine_convolves(tmp_path: Path) -> None:
    assert float(said(program("local", CONVOLUTION, tmp_path))) < 1e-4


@needs(*ARM_PROGRAMS, "no-aarch64")
def test_ncnn_for_a_raspberry_pi_convolves(tmp_path: Path) -> None:
    built = program("rpi4", CONVOLUTION, tmp_path)
    root = Path(said("aarch64-linux-gnu-g++", "-print-file-name=libc.so.6").strip()).parents[1]

    printed = said(arm_emulator(), "-cpu", "cortex-a72", "-L", root, built)

    assert float(printed) < 1e-4


def test_every_layer_that_is_switched_on_is_there_and_can_be_asked_for_by_name(
    tmp_path: Path,
) -> None:
    """The codegen writes ncnn's names, and the recipe the options': lower case."""
    names = layer_names(ncnn_for("local").include[0])
    switched_on = ncnn_layers()
    assert not set(switched_on) - set(names)

    lacking = said(program("local", EVERY_LAYER, tmp_path), *(names[name] for name in switched_on))

    assert lacking == ""


def layer_names(include: Path) -> dict[str, str]:
    """Every layer of this release, by its name in lower case."""
    text = (include / "ncnn" / "layer_type_enum.h").read_text(encoding="utf-8")
    return {name.lower(): name for name in re.findall(r"^(\w+) = \d+,", text, re.MULTILINE)}


def test_the_recipe_says_of_every_layer_whether_it_is_built() -> None:
    recipe = built_in_recipe("ncnn")
    assert recipe.cmake is not None
    spoken_of = {name for group in recipe.cmake.switches for name in (*group.on, *group.off)}

    assert spoken_of == set(layer_names(ncnn_for("local").include[0]))
