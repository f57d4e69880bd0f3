"""A region as C++: ncnn's graph as numbers, its weights as bytes; edgekit_ncnn.h does the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgekit.backends.base import GeneratedRegion, Options, Region, Tensor
from edgekit.backends.ncnn.layout import form, held_tensor, turned_tensors
from edgekit.backends.ncnn.net import Net, net_of
from edgekit.backends.ncnn.params import Precision
from edgekit.backends.ncnn.vulkan import place_in_words
from edgekit.backends.source import region_source
from edgekit.base.quoting import c_string

_NUMBERS_A_LINE = 12
_SWITCHES = (
    *("packing", "winograd", "sgemm", "light_mode"),
    *("fp16_storage", "fp16_arithmetic", "bf16_storage", "vulkan", "software_vulkan"),
)


def generate(region: Region, options: Options) -> GeneratedRegion:
    net = net_of(region)
    weights = net.weights(precision_of(options))
    blobs = {"weights": weights} if weights else {}
    source = region_source(region, ("edgekit_ncnn.h",), _class(region, net, options), "Net", blobs)
    counter = f"\nEDGEKIT_COPIED({region.symbol}, Net)\n"
    place = place_in_words(net, options) if options["vulkan"] else ""
    return GeneratedRegion(region.symbol, region.backend, source + counter, blobs, place)


def precision_of(options: Options) -> Precision:
    return "fp16" if options["weights"] == "fp16" else "fp32"


def settings_of(options: Options) -> tuple[int, ...]:
    """Return the settings in the order of edgekit_ncnn.h: threads, then the switches."""
    switches = (*(bool(options[name]) for name in _SWITCHES), options["non_finite"] == "error")
    return (int(options["threads"]), *map(int, switches))


def _class(region: Region, net: Net, options: Options) -> str:
    threads, *switches = settings_of(options)
    settings = ", ".join([str(threads), *("true" if on else "false" for on in switches)])
    blobs = net.blobs
    names = "\n".join(
        f"    {{{c_string(layer.name)}, {blobs[layer.makes[0]]}}},"
        for layer in net.layers
        if layer.kind not in ("Input", "Split")
    )
    weights = "weights" if net.weights(precision_of(options)) else "edgekit::Blob{nullptr, 0}"
    return f"""\
const int32_t graph[] = {{
{_lines(_word(word) for word in net.words())}
}};

const edgekit::ncnn_net::Held held_inputs[] = {{
{_held(region, region.inputs, net.inputs, net)}
}};

const edgekit::ncnn_net::Held held_outputs[] = {{
{_held(region, region.outputs, net.outputs, net)}
}};

// The layers' names, and the first blob that each makes.
const edgekit::ncnn_net::Named layers[] = {{
{names}
}};

class Net : public edgekit::ncnn_net::Runner {{
 public:
  Net()
      : Runner({{graph, sizeof(graph), {weights}, held_inputs, {len(region.inputs)}, held_outputs,
                {len(region.outputs)}, layers, sizeof(layers) / sizeof(layers[0])}},
               // threads, {", ".join(_SWITCHES)}, only finite inputs
               {{{settings}}}) {{}}
}};
"""


def _word(word: int | str) -> str:
    return f"ncnn::LayerType::{word}" if isinstance(word, str) else str(word)


def _lines(words: Iterable[str]) -> str:
    all_words = list(words)
    rows = (
        all_words[start : start + _NUMBERS_A_LINE]
        for start in range(0, len(all_words), _NUMBERS_A_LINE)
    )
    return "\n".join("    " + ", ".join(row) + "," for row in rows)


def _held(region: Region, tensors: Sequence[Tensor], blobs: Sequence[str], net: Net) -> str:
    numbers, turned = net.blobs, turned_tensors(region)
    rows = []
    for tensor, blob in zip(tensors, blobs, strict=True):
        is_turned = tensor.name in turned
        shape = held_tensor(tensor, is_turned)
        extents = ", ".join(str(extent) for extent in shape)
        rows.append(
            f"    {{{c_string(tensor.name)}, {numbers[blob]}, {len(shape)}, {{{extents}}}, "
            f"edgekit::ncnn_net::{form(tensor, is_turned)}}},"
        )
    return "\n".join(rows)
