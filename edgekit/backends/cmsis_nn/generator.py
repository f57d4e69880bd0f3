"""The operators that CMSIS-NN computes exactly, and the cost of calling it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.aot.kernel import NO_SUCH_WAY, Constant, Declined, Kernel, Library
from edgekit.aot.operators import (
    Add,
    AveragePool,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool,
    Multiply,
    Softmax,
)
from edgekit.aot.program import Step
from edgekit.backends.cmsis_nn import structures
from edgekit.backends.cmsis_nn.sources import CmsisNn
from edgekit.profiles.cpu import Cpu

_HEADERS = ('"arm_nnfunctions.h"',)
_MVE_DEPTHWISE_BLOCK = 124
_FUNCTIONS = {
    "conv": "arm_convolve_wrapper_s8",
    "dw_conv": "arm_depthwise_conv_wrapper_s8",
}
_NOT_EXACT = {
    FullyConnected: "it rounds twice where LiteRT rounds once",
    Add: "it has arm_elementwise_add_s8, whose rounding was not compared with LiteRT's",
    Multiply: "it has arm_elementwise_mul_s8, whose rounding was not compared with LiteRT's",
    Softmax: "it has arm_softmax_s8, which was not compared with LiteRT's",
}
_ABSENT = {
    Add: "arm_elementwise_add_s8",
    Multiply: "arm_elementwise_mul_s8",
    Softmax: "arm_softmax_s8",
}


@dataclass(frozen=True)
class CmsisNnGenerator:
    """Calls into the library, with tables that it reads unchanged."""

    library: CmsisNn

    @property
    def name(self) -> str:
        return "cmsis-nn"

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        del step, cpu
        return ()

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Kernel | Declined:
        operator = step.operator
        if way:
            return NO_SUCH_WAY
        match operator:
            case Conv2D():
                return self._convolution(step, operator, cpu)
            case DepthwiseConv2D():
                return self._depthwise(step, operator, cpu)
            case AveragePool() | MaxPool():
                return self._pool(step, operator, cpu)
        absent = _ABSENT.get(type(operator))
        if absent and absent not in self.library.definitions:
            return Declined(f"CMSIS-NN {self.library.version} from {self._where} has no {absent}")
        return Declined(_NOT_EXACT.get(type(operator), "it has no such kernel"))

    def libraries(self, kernels: Sequence[Kernel]) -> tuple[Library, ...]:
        """Return the library's files that its own kernels among these need."""
        sources = {path for k in kernels if k.maker == self.name for path in k.library_sources}
        if not sources:
            return ()
        found = self.library
        files = found.with_headers(sources)
        includes = sorted({path.partition("/")[0] for path in files if path.endswith(".h")})
        license_text = found.license_text
        return (
            Library(self.name, found.version, files, tuple(includes), "Apache-2.0", license_text),
        )

    @property
    def _where(self) -> str:
        return self.library.origin

    def _missing(self, *functions: str) -> Declined | None:
        for function in functions:
            if function not in self.library.definitions:
                return Declined(
                    f"CMSIS-NN {self.library.version} from {self._where} has no {function}"
                )
        return None

    def _convolution(self, step: Step, operator: Conv2D, cpu: Cpu) -> Kernel | Declined:
        function = _FUNCTIONS["conv"]
        missing = self._missing(function, f"{function}_get_buffer_size")
        if missing:
            return missing
        height, width = operator.window.kernel
        channels, outputs = operator.source.channels, operator.result.channels
        setup = [
            f"params->input_offset = {-operator.zero_point};",
            f"params->output_offset = {operator.rescale.zero_point};",
            *structures.tiles(operator.window),
            *structures.limits(operator.rescale.low, operator.rescale.high),
            *structures.image("input", operator.source),
            *structures.dims("filter", outputs, height, width, channels),
            *structures.image("output", operator.result),
        ]
        depth = height * width * channels
        pointwise = operator.window.kernel == (1, 1) and not any(operator.window.padding)
        scratch = 0 if pointwise else self._columns(depth, cpu)
        pixels = operator.result.height * operator.result.width
        cost = _cost(cpu, pixels, depth, outputs, copied=not pointwise)
        return self._call(step, operator, "conv", setup, scratch, cost)

    def _columns(self, depth: int, cpu: Cpu) -> int:
        """Return the scratch for the windows that the library copies before it multiplies."""
        if "mve-integer" in cpu.features:
            lanes = 16 if self.library.major >= 5 else 8
            return 4 * -(-depth // lanes) * lanes
        return 4 * (-(-depth // 4) * 4 if self.library.major >= 5 else depth)

    def _depthwise(self, step: Step, operator: DepthwiseConv2D, cpu: Cpu) -> Kernel | Declined:
        function = _FUNCTIONS["dw_conv"]
        missing = self._missing(function, f"{function}_get_buffer_size")
        if missing:
            return missing
        height, width = operator.window.kernel
        outputs = operator.result.channels
        setup = [
            f"params->input_offset = {-operator.zero_point};",
            f"params->output_offset = {operator.rescale.zero_point};",
            f"params->ch_mult = {operator.multiplier};",
            *structures.tiles(operator.window),
            *structures.limits(operator.rescale.low, operator.rescale.high),
            *structures.image("input", operator.source),
            *structures.dims("filter", 1, height, width, outputs),
            *structures.image("output", operator.result),
        ]
        scratch = 2 * operator.source.channels * height * width
        if "mve-integer" in cpu.features:
            scratch = 4 * _MVE_DEPTHWISE_BLOCK * height * width
        elif "dsp" not in cpu.features:
            scratch = 0
        macs = operator.result.elements * height * width
        each = 2.8 if "mve-integer" in cpu.features else 8.0
        return self._call(step, operator, "dw_conv", setup, scratch, round(each * macs))

    def _call(
        self,
        step: Step,
        operator: Conv2D | DepthwiseConv2D,
        kind: str,
        setup: list[str],
        scratch: int,
        cost: int,
    ) -> Kernel:
        import numpy as np

        outputs = operator.result.channels
        multipliers, shifts = structures.factors(operator.rescale, outputs)
        name, function = step.name, _FUNCTIONS[kind]
        body = "".join(f"    {line}\n" for line in setup)
        source = f"""\
static void {name}_describe(cmsis_nn_{kind}_params *params, cmsis_nn_dims *input,
    cmsis_nn_dims *filter, cmsis_nn_dims *output)
{{
{body}}}

static int32_t {name}_scratch(void)
{{
    cmsis_nn_{kind}_params params;
    cmsis_nn_dims input, filter, output;
    {name}_describe(&params, &input, &filter, &output);
    return {function}_get_buffer_size(&params, &input, &filter, &output);
}}

static void {name}(const int8_t *restrict from, int8_t *restrict to, void *scratch)
{{
    cmsis_nn_{kind}_params params;
    cmsis_nn_per_channel_quant_params factors;
    cmsis_nn_dims input, filter, output, bias;
    cmsis_nn_context context;
    {name}_describe(&params, &input, &filter, &output);
    bias.n = 1;
    bias.h = 1;
    bias.w = 1;
    bias.c = {outputs};
    context.buf = scratch;
    context.size = {scratch};
    /* The library reads them, and has no const for it. */
    factors.multiplier = (int32_t *)(uintptr_t){name}_multipliers;
    factors.shift = (int32_t *)(uintptr_t){name}_shifts;
    (void){function}(&context, &params, &factors, &input, from, &filter,
        {name}_weights, &bias, {name}_bias, &output, to);
}}
"""
        if not scratch:
            source = source.replace(", void *scratch)", ")").replace("= scratch;", "= NULL;")
        sources = self.library.sources_of((function, f"{function}_get_buffer_size"))
        return Kernel(
            maker="cmsis-nn",
            source=source,
            constants=(
                Constant("weights", np.asarray(operator.weights, np.int8).reshape(-1)),
                Constant("bias", np.asarray(operator.bias, np.int32)),
                Constant("multipliers", multipliers),
                Constant("shifts", shifts),
            ),
            headers=_HEADERS,
            scratch=scratch,
            checks=(f"{name}_scratch() <= {scratch}",),
            library_sources=sources,
            instructions=cost,
            note=f"{function} of CMSIS-NN {self.library.version}",
        )

    def _pool(self, step: Step, operator: AveragePool | MaxPool, cpu: Cpu) -> Kernel | Declined:
        average = isinstance(operator, AveragePool)
        function = "arm_avgpool_s8" if average else "arm_max_pool_s8"
        missing = self._missing(function)
        if missing:
            return missing
        if operator.window.dilations != (1, 1):
            return Declined("the window is dilated")
        channels = operator.source.channels
        dsp = "dsp" in cpu.features and "mve-integer" not in cpu.features
        scratch = 4 * channels if average and dsp else 0
        setup = [
            *structures.tiles(operator.window, dilated=False),
            *structures.limits(operator.low, operator.high),
            *structures.image("input", operator.source),
            *structures.dims("filter", 1, *operator.window.kernel, 1),
            *structures.image("output", operator.result),
        ]
        body = "".join(f"    {line}\n" for line in setup).replace("params->", "params.")
        last = ", void *scratch" if scratch else ""
        for name in ("input", "filter", "output"):
            body = body.replace(f"    {name}->", f"    {name}.")
        source = f"""\
static void {step.name}(const int8_t *restrict from, int8_t *restrict to{last})
{{
    cmsis_nn_pool_params params;
    cmsis_nn_dims input, filter, output;
    cmsis_nn_context context;
{body}    context.buf = {"scratch" if scratch else "NULL"};
    context.size = {scratch};
    (void){function}(&context, &params, &input, from, &filter, &output, to);
}}
"""
        size = f"{function}_get_buffer_size"
        used = (function, size) if size in self.library.definitions else (function,)
        check = f"{size}({operator.result.width}, {channels}) <= {scratch}"
        window = operator.window.kernel[0] * operator.window.kernel[1]
        return Kernel(
            maker="cmsis-nn",
            source=source,
            headers=_HEADERS,
            scratch=scratch,
            checks=(check,) if average and len(used) == 2 else (),
            library_sources=self.library.sources_of(used),
            instructions=operator.result.elements * (30 + 6 * window),
            note=f"{function} of CMSIS-NN {self.library.version}",
        )


def _cost(cpu: Cpu, pixels: int, depth: int, outputs: int, copied: bool) -> int:
    """Estimate the instructions of a convolution, as benchmarks/mcu.py counted them."""
    macs = pixels * depth * outputs
    if "mve-integer" in cpu.features:
        return round(0.17 * macs + 14 * pixels * outputs + (2.2 * pixels * depth if copied else 0))
    if "dsp" in cpu.features:
        return round(1.75 * macs + 21 * pixels * outputs + (7 * pixels * depth if copied else 0))
    return round(5.5 * macs + 30 * pixels * outputs)
