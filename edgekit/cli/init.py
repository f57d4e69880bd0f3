"""edgekit init: write a project file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from edgekit.cli.console import Console
from edgekit.cli.options import Command, board_option, json_option, model_argument, pass_console


@dataclass(frozen=True)
class InitDocument:
    path: Path
    model: Path | None
    board: str | None


@click.command("init", cls=Command)
@model_argument
@board_option
@click.option("--force", is_flag=True, help="Replace an existing edgekit.toml.")
@json_option
@pass_console
def command(console: Console, model: Path | None, board_name: str | None, force: bool) -> None:
    """Write edgekit.toml into this folder.

    With it, commands need neither MODEL nor --board. Without MODEL, use the only model file in
    this folder. For an ONNX model of a known family (YOLO, RetinaFace, PP-OCR, classifiers, masks)
    or a TFLite detector with its boxes it proposes [preprocess] and [postprocess].
    """
    from edgekit.project.file import init_project

    project = init_project(console.workspace.data.folder, model, board_name, force=force)

    def render() -> None:
        console.print(f"wrote {project.path.name}")
        if project.model is None:
            console.print("it names no model yet: set `model` in it")
        if project.ends.preprocess:
            console.print("it proposes what stands before and behind the model: check it")
        if project.model is not None:
            console.print("next: edgekit deploy, which builds, runs, verifies and times the model")

    console.report(InitDocument(project.path, project.model, project.board), render)
