"""Where the labels of points go, so that none lies on another label or on another point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CHARACTER, LINE, MARK = 7.0, 14.0, 6.0
"""Pixels: width of a character, height of a line of text, half the width of a point's mark."""

Align = Literal["left", "center", "right"]
Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


@dataclass(frozen=True)
class Place:
    """Where a label stands, relative to its point, in pixels to the right and downwards."""

    dx: float
    dy: float
    align: Align

    def box(self, x: float, y: float, label: str) -> Box:
        """Left, top, right and bottom of a label, from its point on where it stands beside it.

        So no label that is free of others in a narrow panel lies on one in a wider panel, where points are further
        apart and labels as far from their points as before.
        """
        wide = CHARACTER * len(label)
        left = {"left": x, "center": x - wide / 2, "right": x + self.dx - wide}[self.align]
        right = {"left": x + self.dx + wide, "center": x + wide / 2, "right": x}[self.align]
        return left, y + self.dy - LINE / 2, right, y + self.dy + LINE / 2


PLACES = (Place(0, -14, "center"), Place(0, 14, "center"), Place(10, 0, "left"), Place(-10, 0, "right"))
"""In the order in which they are tried."""


def label_places(
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    width: float,
    height: float,
    fixed: Sequence[Place | None] = (),
) -> list[Place | None]:
    """The place of each point's label; None for a label without room. The first one always gets a place.

    `points` are in pixels from the top left of a panel of `width` x `height`, the most important ones first; there may
    be more points than labels. `fixed` has the places of labels that stay where they are.
    """
    marks = [(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in points]
    found: list[Place | None] = list(fixed) or [None] * len(labels)
    taken = [place.box(*points[i], labels[i]) for i, place in enumerate(found) if place is not None]
    for index, label in enumerate(labels):
        if found[index] is not None:
            continue
        others = [*taken, *marks[:index], *marks[index + 1 :]]
        boxes = {place: place.box(*points[index], label) for place in PLACES}
        inside = [place for place, (left, top, right, bottom) in boxes.items()
                  if left >= 0 and top >= 0 and right <= width and bottom <= height]  # fmt: skip
        free = [place for place in inside if not any(overlap(boxes[place], other) for other in others)]
        if not free and index == 0:
            free = inside or list(PLACES)
        if free:
            found[index] = free[0]
            taken.append(boxes[free[0]])
    return found


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes have an area in common."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
