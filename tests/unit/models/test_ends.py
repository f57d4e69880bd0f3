"""The sections of what stands before and behind a model, their geometry, and what outputs mean."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgekit.base.decode import DecodeError, decode, encode
from edgekit.base.errors import ProjectError
from edgekit.models.ends import Ends
from edgekit.models.ends.drawing import draw
from edgekit.models.ends.geometry import placement
from edgekit.models.ends.postprocess import Boxes, Classes, Mask, Postprocess, Text
from edgekit.models.ends.reading import Meaning, meaning
from edgekit.models.preprocess import Preprocess
from edgekit.project.file import read_project

SIZES = st.tuples(st.integers(1, 5000), st.integers(1, 5000))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("labels = []", "task must be one of"),
        ("task = 'boxs'", "did you mean boxes?"),
        ("task = 'boxes'", "decode must be one of"),
        ("task = 'boxes'\ndecode = 'yolov9'", "did you mean yolov8?"),
        ("task = 'boxes'\ndecode = 'yolov8'\nscore = 2", "score must be a number from 0"),
        ("task = 'boxes'\ndecode = 'yolov8'\nsoftmx = true", "did you mean softmax?"),
        ("task = 'boxes'\ndecode = 'retinaface'\nsteps = [8]", "another number of steps"),
        ("task = 'boxes'\ndecode = 'yolov8'\nmost = 0", "most must be a whole number from 1"),
        ("task = 'classes'\ntop = 0", "top must be a whole number from 1"),
        ("task = 'classes'\nlabels = [1]", "labels[0] must be text"),
        ("task = 'text'", "labels must be a list"),
        ("task = 'mask'\nlayout = 'CHW'", "did you mean NCHW?"),
    ],
)
def test_a_wrong_section_says_what_is_wrong(lines: str, says: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Postprocess, tomli.loads(lines), "edgekit.toml: postprocess")

    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("size = [3]", "size must be two whole numbers"),
        ("size = [0, 3]", "size[0] must be a whole number from 1"),
        ("on = 'bord'", "did you mean board?"),
        ("interpolation = 'bilinear'", "interpolation must be one of"),
        ("fill = 256", "fill must be a number from 0"),
        ("anchor = 'left'", "anchor must be one of"),
    ],
)
def test_a_wrong_picture_says_what_is_wrong(line: str, says: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Preprocess, {"layout": "NCHW"} | tomli.loads(line), "edgekit.toml")

    assert says in str(caught.value)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
SECTIONS = st.one_of(
    st.builds(Classes, st.just("classes"), st.lists(WORDS).map(tuple), top=st.integers(1, 9)),
    st.builds(
        Boxes,
        st.just("boxes"),
        st.sampled_from(["yolov8", "yolov5", "end2end", "retinaface", "corners"]),
        score=st.floats(0, 1),
        iou=st.floats(0, 1),
        most=st.integers(1, 1000),
    ),
    st.builds(Mask, st.just("mask"), threshold=st.floats(-9, 9)),
    st.builds(Text, st.just("text"), st.lists(WORDS).map(tuple), blank=st.integers(-1, 9)),
)


@given(SECTIONS)
def test_a_section_survives_being_written_and_read(section: Any) -> None:
    assert decode(Postprocess, encode(section), "here") == section
    assert decode(type(section), encode(section), need_all=True) == section


@given(
    st.dictionaries(
        st.sampled_from(["task", "decode", "labels", "score", "steps", "sizes", "output"]),
        st.one_of(
            st.sampled_from(["classes", "boxes", "mask", "text", "yolov5"]),
            st.integers(),
            st.floats(),
            st.lists(st.one_of(st.text(), st.lists(st.integers()))),
        ),
    )
)
def test_any_section_is_read_or_refused_with_a_sentence(table: dict[str, object]) -> None:
    try:
        decode(Postprocess, table, "here")
    except DecodeError as error:
        assert error.problems


def test_labels_are_the_lines_of_a_file_beside_the_project(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("cat\n\nbig dog\r\n", encoding="utf-8")
    file = tmp_path / "edgekit.toml"
    file.write_text('schema = 1\n[postprocess]\ntask = "classes"\nlabels = "names.txt"\n')

    found = read_project(file).ends.postprocess

    assert found == Classes("classes", ("cat", "", "big dog"))


@pytest.mark.parametrize(
    ("content", "says"), [(None, "can't be read"), (b"\xff\xfe", "no text in UTF-8")]
)
def test_labels_that_cannot_be_read_are_named_with_their_line(
    content: bytes | None, says: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "names.txt").write_bytes(content)
    file = tmp_path / "edgekit.toml"
    file.write_text('schema = 1\n[postprocess]\ntask = "classes"\nlabels = "names.txt"\n')

    with pytest.raises(ProjectError, match=says) as caught:
        read_project(file)

    assert f"{file}:4" in caught.value.message


def test_the_board_prepares_pictures_unless_the_host_is_named() -> None:
    for said, by_board in ((None, True), ("board", True), ("host", False)):
        ends = Ends({"x": Preprocess("NHWC", on=said)}).settled()  # type: ignore[arg-type]
        assert bool(ends.pictures) is by_board


@given(
    SIZES, SIZES, st.sampled_from(["stretch", "crop", "pad"]), st.sampled_from(["center", "start"])
)
def test_a_placed_picture_lies_inside_and_maps_back(
    source: tuple[int, int], target: tuple[int, int], resize: Any, anchor: Any
) -> None:
    place = placement(Preprocess("NCHW", resize=resize, anchor=anchor), source, target)

    assert 0 <= place.top <= place.top + place.part[0] <= source[0]
    assert 0 <= place.left <= place.left + place.part[1] <= source[1]
    assert 0 <= place.down <= place.down + place.inner[0] <= target[0]
    assert 0 <= place.across <= place.across + place.inner[1] <= target[1]
    (y, dy), (x, dx) = place.back()
    ends = [(place.down, place.top), (place.down + place.inner[0], place.top + place.part[0])]
    assert [place.down * y + dy, ends[1][0] * y + dy] == pytest.approx([e[1] for e in ends])
    sides = (place.across * x + dx, (place.across + place.inner[1]) * x + dx)
    assert sides == pytest.approx((place.left, place.left + place.part[1]))


def test_a_letterbox_is_the_one_of_ultralytics() -> None:
    """640 x 640 for an image of 810 x 1080: 480 rows, 80 above and below."""
    place = placement(Preprocess("NCHW", resize="pad"), (810, 1080), (640, 640))

    assert (place.inner, place.down, place.across) == ((480, 640), 80, 0)


def text_of(classes: list[int], **options: Any) -> str | None:
    section = Text("text", ("a", "b", "c"), **options)
    return meaning(section, {"classes": np.array(classes), "scores": np.ones(9)}, None).text


def test_ctc_drops_blanks_and_repeated_characters() -> None:
    assert text_of([0, 1, 1, 0, 1, 2, 2, 3, 0]) == "aabc"
    assert text_of([3, 3, 0, 0, 1, 3], blank=3) == "ab"
    assert text_of([0, 0, 1, 2], blank=-1, collapse=False) == "aabc"
    assert text_of([0, 0]) == ""


def test_boxes_are_those_with_a_score_in_pixels_of_the_image() -> None:
    preprocess = Preprocess("NCHW", resize="pad")
    place = placement(preprocess, (100, 200), (50, 50))
    outputs = {
        "boxes": np.array([[10.0, 12.0, 20.0, 37.0], [0, 0, 50, 50], [0, 0, 0, 0]], np.float32),
        "scores": np.array([0.9, 0.5, 0.0], np.float32),
        "classes": np.array([1, 7, 0], np.int32),
    }

    first, second = meaning(Boxes("boxes", "yolov8", ("cat", "dog")), outputs, place).found

    assert (first.name, first.box) == ("dog", (40.0, 0.0, 80.0, 100.0))
    assert (second.name, second.box) == ("7", (0.0, 0.0, 200.0, 100.0))


def test_a_mask_is_told_by_the_shares_of_its_classes() -> None:
    mask = np.array([[0, 2], [2, 2]], np.uint8)
    found = meaning(Mask("mask", ("sky", "road", "tree")), {"mask": mask}, None).found

    assert [(one.name, one.score) for one in found] == [("tree", 0.75), ("sky", 0.25)]


def test_masks_of_boxes_are_drawn_in_their_colors_the_best_on_top(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    masks = np.zeros((3, 4, 4), np.uint8)
    masks[0, :2], masks[1, 1:3], masks[2] = 1, 1, 1
    scores = np.array([0.9, 0.8, 0.0], np.float32)
    outputs = {"masks": masks, "scores": scores, "classes": np.array([0, 1, 2], np.int32)}
    preprocess = Preprocess("NHWC", on="board")
    place = placement(preprocess, (8, 8), (8, 8))

    drawn = draw(tmp_path / "a.png", Meaning("boxes"), outputs, preprocess, place)

    pixels = np.asarray(Image.open(io.BytesIO(drawn)))
    assert (pixels[:4] == pixels[0, 0]).all() and pixels[0, 0, 0] > pixels[0, 0, 1]  # red
    assert (pixels[4:6] == pixels[4, 0]).all() and pixels[4, 0, 1] > pixels[4, 0, 0]  # green
    assert not pixels[6:].any()
