"""How each parser is called with data. What it takes is used as edgekit uses it afterwards."""

from __future__ import annotations

import io
import json
import socket
import threading
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from support.bundles import sealed

from edgekit.aot.firmware.firmware_file import read_firmware
from edgekit.base.decode import decode_json
from edgekit.base.errors import EdgekitError
from edgekit.base.json_reader import read_json
from edgekit.base.npy import read_npy
from edgekit.base.tensors import TensorSpec
from edgekit.base.zip_reader import read_zip
from edgekit.bundle import archive
from edgekit.bundle.manifest import InputEntry, parse_manifest
from edgekit.bundle.samples import InputFile, load_samples
from edgekit.compiler.schedules.trace_text import check_trace
from edgekit.devices.elf import read_elf
from edgekit.devices.linux.agent_messages import AgentMessages, parse_bench, parse_info
from edgekit.devices.linux.device_log import parse_line
from edgekit.devices.linux.version_records import parse_record, parse_versions
from edgekit.devices.local.frames import read_frame
from edgekit.devices.sensors.discovery import discover
from edgekit.devices.sensors.snapshot import parse_snapshot
from edgekit.devices.serial.frames import FrameDecoder, SerialFrame
from edgekit.devices.serial.messages import (
    parse_fault,
    parse_hello,
    parse_inference,
    parse_memory,
    parse_model,
    parse_tensor,
    parse_text,
)
from edgekit.farm.hosts.file import FarmHost
from edgekit.farm.hosts.joined import JoinedHost
from edgekit.models.model import ModelFormat, ModelSource, scan_model
from edgekit.models.preprocess import Preprocess
from edgekit.profiles.board import check_board
from edgekit.project.file import read_project
from edgekit.registry.address import Address
from edgekit.registry.parts import parts_of_file
from edgekit.registry.reports import BoardReport, ReportWriter, read_reports
from edgekit.registry.rollout import Rollout
from edgekit.registry.statement import read_document, read_statement
from edgekit.rpc.protocol import TrackerAddress, TrackerClient
from edgekit.store.documents import from_document
from edgekit.twin.state import parse_state
from fuzz import seeds
from fuzz.seeds import program_archive

MATRIX = InputEntry(TensorSpec("x", "float32", (2, 3)), None)
PHOTO = InputEntry(TensorSpec("x", "float32", (1, 3, 8, 8)), Preprocess("NCHW"))


def written(data: bytes, folder: Path, name: str) -> Path:
    """The data as a file."""
    path = folder / name
    path.write_bytes(data)
    return path


def json_document(data: bytes, folder: Path) -> None:
    json.dumps(read_json(data), allow_nan=False).encode()


def zip_file(data: bytes, folder: Path) -> None:
    for member in read_zip(io.BytesIO(data)).values():
        member.read()


def npy(data: bytes, folder: Path) -> None:
    read_npy(io.BytesIO(data))


def npy_input(data: bytes, folder: Path) -> None:
    load_samples([InputFile(None, written(data, folder, "x.npy"))], [MATRIX])


def npz_input(data: bytes, folder: Path) -> None:
    load_samples([InputFile(None, written(data, folder, "x.npz"))], [MATRIX])


def image_input(data: bytes, folder: Path) -> None:
    load_samples([InputFile(None, written(data, folder, "x.png"))], [PHOTO])


def pt2(data: bytes, folder: Path) -> None:
    from edgekit.models.torch.archive import read_program

    read_program(written(data, folder, "model.pt2"))


def pt2_description(data: bytes, folder: Path) -> None:
    """The archive around it is sound."""
    pt2(program_archive(data), folder)


def onnx_model(data: bytes, folder: Path) -> None:
    _scan(written(data, folder, "model.onnx"), "onnx")


def tflite_model(data: bytes, folder: Path) -> None:
    _scan(written(data, folder, "model.tflite"), "tflite")


def _scan(path: Path, kind: ModelFormat) -> None:
    scan_model(ModelSource(path, kind, ""))


def manifest(data: bytes, folder: Path) -> None:
    """A manifest has a digest over itself: what is still JSON gets a right one."""
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        data = sealed(json.loads(data))
    parse_manifest(data)


def registry_document(data: bytes, folder: Path) -> None:
    """A document of a registry has a signature: what is still JSON gets a right one."""
    place = seeds.REGISTRY_ADDRESS
    key = seeds.registry_key()
    with suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
        data = seeds.signed_again(data)
    if b"rollout" in data:
        rollout, _ = read_statement(Rollout, data, place, key.public)
        rollout.version_for("board-1")
        return
    signed = read_document(data, place, key.public)
    for file in parse_manifest(seeds.manifests()[0]).files:
        assert sum(part.size for part in parts_of_file(file, signed.parts)) == file.size


def board_report(data: bytes, folder: Path) -> None:
    """What is taken for a report is kept and read as it was."""
    report = decode_json(BoardReport, data)
    file = folder / "reports.sqlite"
    with closing(ReportWriter(file)) as writer:
        writer.keep(report)
    place = Address("localhost", report.name, f"rollout-{report.channel}")
    assert list(read_reports(file, place)) == [report]


def bundle_archive(data: bytes, folder: Path) -> None:
    target = folder / "unpacked"
    target.mkdir()
    archive._unpack(io.BytesIO(data), folder / "bundle.zip", target)


def board(data: bytes, folder: Path) -> None:
    check_board(written(data, folder, "board.toml"))


def project(data: bytes, folder: Path) -> None:
    read_project(written(data, folder, "edgekit.toml"))


def worker_frame(data: bytes, folder: Path) -> None:
    stream = io.BytesIO(data)

    def read_into(buffer: memoryview) -> None:
        if stream.readinto(buffer) != len(buffer):
            raise ValueError("cut off")

    read_frame(read_into)


def serial_frames(data: bytes, folder: Path) -> None:
    decoder = FrameDecoder()
    for start in range(0, len(data), 100):
        for frame in decoder.feed(data[start : start + 100]):
            if isinstance(frame, SerialFrame):
                _serial_message(frame.payload)


def _serial_message(payload: bytes) -> None:
    parsers = (parse_hello, parse_model, parse_tensor, parse_inference, parse_memory, parse_fault)
    for parse in (*parsers, parse_text):
        try:
            parse(payload)
        except (EdgekitError, ValueError):
            continue


def agent_messages(data: bytes, folder: Path) -> None:
    messages = AgentMessages()
    for line in data.decode("utf-8", "replace").splitlines():
        message = messages.take(line)
        with suppress(EdgekitError):
            parse_info(line, "pi")
        with suppress(EdgekitError):
            parse_bench(message or {}, "pi")


def device_log(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    for line in text.splitlines():
        parse_line(line)
        parse_record(line)
    parse_versions(text)


def sensors(data: bytes, folder: Path) -> None:
    discover(parse_snapshot(data.decode("utf-8", "replace")))


class _Tracker:
    """Answers everybody with the same bytes, and hangs up."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.answer = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._listening.accept()
            with client:
                try:
                    client.sendall(self.answer)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(1 << 16):
                        pass
                except OSError:
                    continue


@cache
def _running_tracker() -> _Tracker:
    return _Tracker()


def tracker(data: bytes, folder: Path) -> None:
    running = _running_tracker()
    running.answer = data
    with TrackerClient(TrackerAddress("127.0.0.1", running.port)) as client:
        client.status()


def joined_farm(data: bytes, folder: Path) -> None:
    host = JoinedHost(FarmHost("lab", "user@lab"), 0.0)
    for line in data.splitlines():
        try:
            message = read_json(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            host.take(message, 1.0)


def trace(data: bytes, folder: Path) -> None:
    check_trace(data.decode("utf-8", "replace"))


def results(data: bytes, folder: Path) -> None:
    from_document(read_json(data))


def twin_state(data: bytes, folder: Path) -> None:
    parse_state(data, "pi")


def elf(data: bytes, folder: Path) -> None:
    path = written(data, folder, "model.so")
    for read in (read_elf, read_firmware):
        try:
            read(path)
        except EdgekitError:
            continue
