"""Altair's charts as pages and papers have them: a specification for a browser, a picture for paper, the program."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from study.reporting.charts import POINTER
from trainables.files import write_whole


def specification(chart: alt.LayerChart) -> dict[str, Any]:
    """The chart in Vega-Lite's JSON. It is not held against the schema, which takes longer than all else: tests are."""
    drawn = chart.to_dict(validate=False)
    # Legends one below the other. Vega knows this, Vega-Lite passes it on, and its schema, which Altair is made of,
    # does not have it.
    drawn["config"]["legend"]["layout"] = {"top": {"direction": "vertical", "margin": 8}}
    return drawn


def wide(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """A specification for a browser: as wide as the element that it is put into."""
    return {**drawn, "width": "container"}


def svg(drawn: Mapping[str, Any]) -> str:
    """A specification as a picture that stays as it is: light, and as wide as a page of paper."""
    layers = [layer for layer in drawn["layer"] if layer.get("name") != POINTER]
    # What can be zoomed is clipped, mark by mark, which is most of the work of making pixels of it.
    still = [parameter for parameter in drawn.get("params", ()) if parameter.get("bind") != "scales"]
    return vl_convert.vegalite_to_svg({**drawn, "layer": layers, "params": still})


def png(picture: str) -> bytes:
    """A picture of `svg` in pixels, two for each of its own."""
    return vl_convert.svg_to_png(picture, scale=2)


def program() -> str:
    """The JavaScript that draws specifications in a browser: vega, vega-lite and vega-embed in one, without a network.

    It takes two seconds to put together, and is kept among the caches of the user.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    kept = Path(home) / "retrieval-study" / f"vega-{version('vl-convert-python')}.js"
    if kept.exists():
        return kept.read_text(encoding="utf-8")
    text = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    # A home that cannot be written only costs the time again.
    if os.access(next(folder for folder in kept.parents if folder.exists()), os.W_OK):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, text)
    return text


def as_json(value: Any) -> str:
    """JSON that can stand inside of an HTML element `script`."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
