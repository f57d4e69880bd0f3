"""Pictures of graphs: boxes that don't overlap, above those that read them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from edgekit.backends.layout import Size, lay_out


@st.composite
def drawn_graphs(draw: st.DrawFn) -> tuple[list[Size], list[list[int]]]:
    reads: list[list[int]] = []
    for index in range(draw(st.integers(1, 25))):
        producers = st.lists(st.integers(0, index - 1), unique=True, max_size=3)
        reads.append(sorted(draw(producers)) if index else [])
    extents = st.floats(10, 200)
    return [Size(draw(extents), draw(extents)) for _ in reads], reads


@settings(deadline=None, max_examples=examples(100))
@given(drawn_graphs())
def test_boxes_keep_apart_inside_the_picture_and_arrows_go_down(
    graph: tuple[list[Size], list[list[int]]],
) -> None:
    sizes, reads = graph
    layout = lay_out(sizes, reads)
    boxes = list(zip(layout.places, sizes, strict=True))
    for place, size in boxes:
        assert place.x >= 0
        assert place.y >= 0
        assert place.x + size.width <= layout.size.width + 1e-6
        assert place.y + size.height <= layout.size.height + 1e-6
    for index, (place, size) in enumerate(boxes):
        for other, other_size in boxes[:index]:
            apart_across = (
                place.x + size.width <= other.x + 1e-6
                or other.x + other_size.width <= place.x + 1e-6
            )
            apart_down = (
                place.y + size.height <= other.y + 1e-6
                or other.y + other_size.height <= place.y + 1e-6
            )
            assert apart_across or apart_down
    assert set(layout.routes) == {(p, reader) for reader, ps in enumerate(reads) for p in ps}
    for (start, end), points in layout.routes.items():
        assert points[0].y == boxes[start][0].y + boxes[start][1].height
        assert points[-1].y == boxes[end][0].y
        heights = [point.y for point in points]
        assert heights == sorted(heights)


def test_an_empty_graph_is_an_empty_picture() -> None:
    assert lay_out([], []).places == ()
