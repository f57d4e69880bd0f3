"""Whole data for each parser, made in code: what is damaged begins as something that passes."""

from __future__ import annotations

import base64
import io
import json
import struct
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.bundles import make_bundle
from support.profiles import LINUX_BOARD

from edgekit.base.decode import encode
from edgekit.base.files import sha256_file
from edgekit.base.json_text import json_line
from edgekit.bundle.archive import write_archive
from edgekit.devices.keeper_messages import DeviceStatus, FarmStatus, Lease, Reservation, Waiter
from edgekit.devices.local.frames import encode_frame as encode_worker_frame
from edgekit.devices.serial.frames import SerialFrame, encode_frame
from edgekit.registry.address import Address
from edgekit.registry.keys import PublicKey, SigningKey
from edgekit.registry.parts import parts_of
from edgekit.registry.reports import BoardReport
from edgekit.registry.rollout import Rollout, Version
from edgekit.registry.statement import _SIGNED, Statement, signed_document, write_document

Seeds = Sequence[bytes]
OPEN = Path(__file__).parents[2]


@cache
def messages() -> Seeds:
    """Lines of the agent, of a device's log, of versions."""
    state = {"governor": "powersave", "frequency_mhz": 1800.5, "load_average": 0.25, "cores": 4}
    documents: list[dict[str, Any]] = [
        {"phase": "load", "threads": 4},
        {"sample": 0, "nanoseconds": 120_000},
        {"error": "no such file", "kind": "runtime"},
        {
            "nanoseconds": [1000, 1100, 900],
            "warmup": 3,
            "threads": 4,
            "memory_before": None,
            "memory_peak": 1 << 20,
            "host_before": state,
            "host_after": state,
            "preemptions": 2,
            "load_nanoseconds": 10**9,
            "kernels": [{"name": "conv", "nanoseconds": 5, "calls": 1}],
        },
        {
            **dict.fromkeys(("agent", "tvm", "tvm_ffi", "kernel", "hostname", "glibc"), "1.2"),
            "machine": "aarch64",
            "features": ["fp", "asimd"],
            "cores": 4,
            **dict.fromkeys(("memory", "memory_available", "disk_free", "millidegrees"), 40_000),
        },
        {
            "schema": 1,
            "time": "2026-01-02T03:04:05Z",
            "clock": "synchronised",
            "event": "deployed",
            "seconds": 1.5,
            "digest": "ab" * 32,
            "last_lines": ["one", "two"],
            "model": "net",
            "edgekit": "0.1.0",
            "board": "rpi4",
            "files": [{"name": "model.so", "size": 10, "sha256": "cd" * 32}],
        },
    ]
    lines = [json.dumps(document).encode() for document in documents]
    return [*lines, b"\n".join(lines), b'{"a": "\\u00e9\\ud83d\\ude00", "b": [1, -2.5e3, null]}']


@cache
def zips() -> Seeds:
    found = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as out:
            out.writestr("m/a.txt", b"some text " * 9)
            out.writestr("m/b", bytes(30))
        found.append(stream.getvalue())
    return [*found, *npzs()]


@cache
def npys() -> Seeds:
    arrays = [np.ones((2, 3), "float32"), np.zeros((), "int8"), np.ones((2, 2), ">f8").T]
    return [_saved(lambda stream, array=array: np.save(stream, array)) for array in arrays]


@cache
def npzs() -> Seeds:
    x = np.ones((2, 3), "float32")
    return [
        _saved(lambda stream: np.savez(stream, x=x)),
        _saved(lambda stream: np.savez_compressed(stream, x=x)),
    ]


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    stream = io.BytesIO()
    save(stream)
    return stream.getvalue()


@cache
def plain_pictures() -> Seeds:
    """Pictures in formats without compression."""
    from PIL import Image

    grey = Image.fromarray(np.arange(35, dtype="uint8").reshape(5, 7))
    saved = (
        (grey, "ppm"),
        (grey, "bmp"),
        *((grey.convert("RGB"), kind) for kind in ("ppm", "bmp")),
    )
    return [
        _saved(lambda stream, one=one, kind=kind: one.save(stream, kind)) for one, kind in saved
    ]


@cache
def images() -> Seeds:
    from PIL import Image

    found = []
    kinds = [("RGB", "PNG"), ("L", "PNG"), ("P", "PNG"), ("I;16", "PNG"), ("RGB", "JPEG")]
    for mode, kind in kinds:
        picture = Image.new(mode, (9, 7))
        found.append(_saved(lambda stream, p=picture, k=kind: p.save(stream, k)))
    turned = Image.Exif()
    turned[0x0112] = 6
    rgb = Image.new("RGB", (9, 7))
    return [*found, _saved(lambda stream: rgb.save(stream, "JPEG", exif=turned))]


def program_archive(model: bytes) -> bytes:
    """Pack a .pt2 file with this description of a program."""
    weights = {"config": {"w": {"path_name": "weight_0", "tensor_meta": _tensor(3)}}}
    members = {
        "byteorder": b"little",
        "models/model.json": model,
        "data/weights/model_weights_config.json": json.dumps(weights).encode(),
        "data/weights/weight_0": bytes(12),
        "data/constants/model_constants_config.json": b'{"config": {}}',
    }

    def save(stream: io.BytesIO) -> None:
        with zipfile.ZipFile(stream, "w") as out:
            for name, content in members.items():
                out.writestr(f"net/{name}", content)

    return _saved(save)


def _tensor(*sizes: int) -> dict[str, Any]:
    return {
        "dtype": 7,
        "sizes": [{"as_int": size} for size in sizes],
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": 1} for _ in sizes],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


@cache
def pt2s() -> Seeds:
    """A whole .pt2 file."""
    return [program_archive(model) for model in pt2_descriptions()]


@cache
def pt2_descriptions() -> Seeds:
    """A program as torch describes it, by hand: fuzzing its archive needs no torch."""
    names = {"p_w": _tensor(3), "x": _tensor(3), "mul": _tensor(3)}
    names["x"]["sizes"] = [{"as_expr": {"expr_str": "Symbol('s7', integer=True)", "hint": None}}]
    power = "Pow(Symbol('s7', integer=True), Integer(2)) + Max(1, s7//2)"
    names["mul"]["sizes"] = [{"as_expr": {"expr_str": power, "hint": {"as_int": 9}}}]
    leaf = {"type": None, "context": None, "children_spec": []}
    structure = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf]}
    model = {
        "graph_module": {
            "graph": {
                "inputs": [{"as_tensor": {"name": "p_w"}}, {"as_tensor": {"name": "x"}}],
                "outputs": [{"as_tensor": {"name": "mul"}}],
                "nodes": [
                    {
                        "target": "torch.ops.aten.mul.Tensor",
                        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}],
                        "outputs": [{"as_tensor": {"name": "mul"}}],
                        "metadata": {"stack_trace": "here"},
                    }
                ],
                "tensor_values": names,
            },
            "signature": {
                "input_specs": [
                    {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
                    {"user_input": {"arg": {"as_tensor": {"name": "x"}}}},
                ],
                "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "mul"}}}}],
            },
            "module_call_graph": [
                {"fqn": "", "signature": {"in_spec": json.dumps([1, structure])}}
            ],
        },
        "guards_code": [],
    }
    return [json.dumps(model).encode()]


@cache
def onnxs() -> Seeds:
    from support.building import write_model

    with tempfile.TemporaryDirectory() as folder:
        return [write_model(Path(folder) / "m.onnx").read_bytes()]


@cache
def tflites() -> Seeds:
    from support.tflite_models import Op, T, tflite_bytes

    tensors = [T("x", (1, 4)), T("y", (1, 4))]
    return [tflite_bytes(tensors, [Op("RELU", ("x",), ("y",))], ["x"], ["y"])]


@cache
def manifests() -> Seeds:
    with tempfile.TemporaryDirectory() as folder:
        bundle = make_bundle(Path(folder) / "b")
        return [(bundle.path / "manifest.json").read_bytes()]


REGISTRY_ADDRESS = Address("registry.example", "team/net", "stable")


@cache
def registry_key() -> SigningKey:
    """Return the key that signs the documents: the same one each time, so that crashes stay."""
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    raw = private.public_key().public_bytes_raw()
    return SigningKey(PublicKey("fuzz", "0" * 16, Path("fuzz.pub"), raw), private)


@cache
def registry_documents() -> Seeds:
    """Documents of a bundle and of a rollout."""
    key = registry_key()
    with tempfile.TemporaryDirectory() as folder:
        bundle = make_bundle(Path(folder) / "b")
        manifest = bundle.path / "manifest.json"
        sha256, parts = sha256_file(manifest), parts_of(bundle)
        statement = Statement("bundle", "team/net", "stable", sha256, "local", 3)
        whole = write_document(statement, parts, manifest.stat().st_size, key)
    version = Version("stable", sha256, "local")
    rollout = Rollout(
        "rollout", "team/net", "kitchen", "running", version, None, (100, 10_000), 0, 2
    )
    config = {"mediaType": "application/json", "digest": f"sha256:{sha256}", "size": 2}
    text = json_line(encode(rollout))
    return [whole, signed_document("application/vnd.oci.empty.v1+json", config, (), text, key)]


def board_reports() -> Seeds:
    """Reports of a board that took a version, and of one that did not."""
    place = ("team/net", "kitchen", "board-1", "ab" * 32, 7)
    reports = (
        BoardReport(*place, "updated", True, 1_200_000),
        BoardReport(*place, "failed", False, None, "signal 4"),
    )
    return [json_line(encode(report)).encode() for report in reports]


def signed_again(data: bytes) -> bytes:
    """Return a document whose statement, damaged or not, is signed."""
    document = json.loads(data)
    notes = document["annotations"]
    text = notes["dev.edgekit.statement"]
    signature = registry_key().sign(_SIGNED + text.encode())
    notes["dev.edgekit.signature"] = base64.b64encode(signature).decode("ascii")
    return json.dumps(document).encode()


@cache
def archives() -> Seeds:
    with tempfile.TemporaryDirectory() as folder:
        bundle = make_bundle(Path(folder) / "b")
        packed = Path(folder) / "b.zip"
        write_archive(bundle.path, bundle.manifest, packed)
        return [packed.read_bytes()]


@cache
def boards() -> Seeds:
    names = ("rpi4", "stm32f746g-disco", "jetson-agx-thor")
    found = [OPEN / "boards" / f"{name}.toml" for name in names]
    return [
        LINUX_BOARD.replace("{name}", "board").encode(),
        *(path.read_bytes() for path in found if path.is_file()),
    ]


@cache
def projects() -> Seeds:
    text = """\
schema = 1
model = "net.onnx"
board = "rpi4"
[shapes]
image = [1, 3, 8, 8]
[devices.desk]
board = "rpi4"
host = "desk.example"
user = "pi"
port = 2222
"""
    return [text.encode(), b'schema = 1\nboard = "local"\n']


@cache
def worker_frames() -> Seeds:
    arrays = [np.ones((2, 3), "float32"), np.zeros((0, 4), "int8")]
    return [
        b"".join(bytes(piece) for piece in encode_worker_frame({"do": "run"}, given))
        for given in (arrays, [])
    ]


@cache
def serial_frames() -> Seeds:
    payloads = [b"", bytes(64), b"\1name\0more\0" * 4, struct.pack("<7I", *range(7)) + b"x" * 30]
    frames = [encode_frame(SerialFrame(kind, 5, load)) for kind, load in enumerate(payloads)]
    return [*frames, b"".join(frames), b"boot loader\r\n" + frames[1]]


@cache
def snapshots() -> Seeds:
    lines = {
        "/sys/class/hwmon/hwmon0/name": "ina3221",
        "/sys/class/hwmon/hwmon0/in1_label": "VDD_IN",
        "/sys/class/hwmon/hwmon0/in1_input": "5000",
        "/sys/class/hwmon/hwmon0/curr1_input": "1200",
        "/sys/class/thermal/thermal_zone0/type": "cpu-thermal",
        "/sys/class/thermal/thermal_zone0/temp": "45123",
        "/sys/class/powercap/intel-rapl:0/name": "package-0",
        "/sys/class/powercap/intel-rapl:0/energy_uj": "123456",
        "/sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1800000",
    }
    return ["".join(f"{path}\t{value}\n" for path, value in lines.items()).encode()]


@cache
def tracker_answers() -> Seeds:
    key = {"free": 1, "pending": 0}
    answer = [0, {"queue_info": {"pi": key}, "server_info": [{"key": "server:pi", "addr": None}]}]
    data = json.dumps(answer).encode()
    return [struct.pack("<ii", 0x2F271, len(data)) + data]


@cache
def farm_messages() -> Seeds:
    values: Mapping[str, Any] = {
        "name": "desk",
        "board": "rpi4",
        "key": "rpi4",
        "state": "free",
        "since": 10.0,
        "reason": "",
        "port": 5000,
        "sessions": 3,
        "faults": 0,
        "load": 0.5,
        "lease": Lease("ada@attic:1", "tuning", 160.0),
        "host": "",
        "address": "ada@attic",
        "is_emulated": True,
        "queue": (Waiter("bob@attic:2", "bench", 150.0),),
        "reservation": Reservation("ada@attic", 200.0),
    }
    known = {name: values.get(name) for name in DeviceStatus.__dataclass_fields__}
    status = FarmStatus(7, 50.0, 100.0, "127.0.0.1:9190", (DeviceStatus(**known),))
    news = {"state": "news", "status": asdict(status), "ports": {"desk": 5005}}
    return [json.dumps(news).encode(), b'{"id": 1, "answer": {"a": 1}}\n{"id": 1, "over": true}']


@cache
def traces() -> Seeds:
    steps = [
        ["GetSBlock", [], ["T_relu", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v1", "v2"]],
    ]
    return [json.dumps([steps, [[2, [2, 4]]]]).encode()]


@cache
def results() -> Seeds:
    from support.stores import a_run

    from edgekit.store.documents import written_document

    return ["".join(written_document([a_run(0), a_run(1)])).encode()]


@cache
def twin_states() -> Seeds:
    state = {
        "schema": 1,
        "name": "pi",
        "board": "rpi4",
        "uuid": "12345678-1234-5678-1234-567812345678",
        "hardware": {"machine": "virt", "cpu": "cortex-a72", "cores": 4, "memory": 1 << 30},
        "image": "abc",
        "port": 2222,
        "wanted": True,
        "init": "systemd",
    }
    return [json.dumps(state).encode()]


@cache
def elfs() -> Seeds:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "x.c", Path(folder) / "x.so"
        source.write_text('#include <stdlib.h>\nint f(void) { return atoi(getenv("X")); }\n')
        subprocess.run(["cc", "-shared", "-fPIC", "-s", "-o", library, source], check=True)
        return [library.read_bytes()]


@cache
def requests() -> Seeds:
    """What the agent is asked: the number of words, the words, and data."""
    return [
        b"2\ninfo\nall\n1\nend\n",
        b"3\nstore\n5\nx\nabcde1\nend\n",
        b"1\n" + b"x" * 300 + b"\n",
    ]


@cache
def firmware_requests() -> Seeds:
    """Requests in the form that native/serve.c puts into frames: kind, number, length, payload."""

    def request(kind: int, number: int, *words: int, data: bytes = b"") -> bytes:
        payload = struct.pack(f"<{len(words)}I", *words) + data
        return bytes((kind, number, len(payload))) + payload

    hello = request(0x01, 1)
    talk = [
        *(request(0x02, 2 + model, model) for model in range(3)),
        *(request(0x03, 5, model, 0, side) for model in range(2) for side in range(2)),
        request(0x04, 6, 0, 1),
        request(0x05, 7),
        request(0x10, 8, 0, 0, 0, data=bytes(16)),
        request(0x10, 9, 1, 0, 100, data=bytes(100)),
        request(0x11, 10, 0),
        request(0x12, 11, 1, 1),
        request(0x13, 12, 1, 0, 0, 200),
        request(0x06, 13),
    ]
    return [hello, *(hello + one for one in talk), hello + b"".join(talk)]
