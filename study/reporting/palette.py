"""The colours of figures and pages, each with its twin for dark pages.

Categories are Okabe and Ito's colours, an ordered parameter runs through plasma without the end that the page would
swallow. Categories also differ in shape, and neighbouring values in dash: nothing is told by colour alone.
"""

from __future__ import annotations

from study.protocol.states import TrialState

INK, SOFT, AXIS, GRID, GREY, PAPER = "#1d2129", "#4a505a", "#b8bdc6", "#e9ebef", "#767c87", "#ffffff"
HIGHLIGHT = "#fbeec6"
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, BLACK = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000"
)  # fmt: skip
CATEGORIES = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, BLACK)
SHAPES = ("circle", "triangle-up", "square", "diamond", "triangle-down", "cross", "triangle-right")
ORDERED = (
    "#0d0887", "#350498", "#5302a3", "#6f00a8", "#8a09a5", "#a21d9a", "#b7318a", "#cb4679", "#da5b69",
    "#e87059", "#f3874a", "#fb9f3a",
)  # fmt: skip
"""From the lowest value of a parameter to the highest."""
STOPPED: dict[TrialState, tuple[str, str]] = {
    TrialState.PRUNED: (ORANGE, "triangle-down"),
    TrialState.COLLAPSED: (VERMILION, "cross"),
    TrialState.FAILED: (INK, "square"),
    TrialState.INTERRUPTED: (GREY, "diamond"),
}
"""Colour and shape of the marks of trials that did not finish."""

DARK = {
    INK: "#e8eaee",
    SOFT: "#b4bac4",
    AXIS: "#4a515c",
    GRID: "#2a2f37",
    GREY: "#9aa1ac",
    PAPER: "#15181d",
    HIGHLIGHT: "#453b17",
    BLUE: "#4c9fe0",
    ORANGE: "#f0b429",
    GREEN: "#2fc79a",
    PINK: "#e29ac4",
    SKY: "#9bd6ff",
    VERMILION: "#ff8a4c",
    BLACK: "#f5f5f5",
} | dict(
    zip(
        ORDERED,
        ("#b12a90", "#c03a83", "#cd4a76", "#da5a6a", "#e56a5d", "#ee7b51", "#f68d45", "#fba139", "#fdb52e",
         "#fdcb26", "#f7e225", "#f0f921"),
        strict=True,
    )
)  # fmt: skip
"""Colour on a light page -> the one that stands for it on a dark page."""
