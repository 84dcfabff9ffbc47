"""Figures: they are Vega-Lite's, nothing in them collides, their axes can be read."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from study.protocol.folder import StudyFolder
from study.reporting import vega
from study.reporting.charts import Scale, span
from study.reporting.figures import figures
from study.reporting.label_places import label_places, overlap
from study.reporting.palette import DARK
from study.reporting.results import Findings

_spec = importlib.util.spec_from_file_location("synthetic_study", Path(__file__).with_name("synthetic_study.py"))
assert _spec is not None and _spec.loader is not None  # noqa: PT018
synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(synthetic)

STUDIES = {
    "k": lambda folder: synthetic.write_study(folder, synthetic.K_STUDY, seeds=2),
    "angle": synthetic.angle_study,
    "retromae": synthetic.retromae_study,
    "backbones": synthetic.backbones_study,
}
CURVES = {"training_loss", "validation_curve"}
EXPECTED = {
    "k": CURVES | {"curve", "matched_cost", "pareto"},
    "angle": CURVES | {"means_spearman", "differences_spearman", "means_pearson", "differences_pearson"},
    "retromae": CURVES | {"curve", "plane_map", "importances"},
    "backbones": CURVES | {"curve", "matched_cost", "pareto"},
}


@pytest.fixture(scope="module", params=STUDIES)
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Findings]:
    folder = tmp_path_factory.mktemp(request.param)
    STUDIES[request.param](folder)
    return request.param, Findings(StudyFolder(folder))


def test_figures_are_there_and_valid(study: tuple[str, Findings]) -> None:
    name, findings = study
    found = figures(findings)
    assert found.keys() == EXPECTED[name]
    for chart in found.values():
        # Altair holds it against the schema of Vega-Lite, which a report does not take the time for.
        written = json.dumps(chart.to_dict(validate=True))
        assert "rows" in written
        picture = vega.svg(vega.specification(chart))
        assert picture.startswith("<svg")
        assert "NaN" not in picture


def test_every_colour_has_a_twin_for_dark_pages(study: tuple[str, Findings]) -> None:
    import re

    for chart in figures(study[1]).values():
        assert set(re.findall(r"#[0-9a-f]{6}\b", json.dumps(vega.specification(chart)))) <= DARK.keys()


def test_the_labels_of_an_axis_of_seven_long_words_are_turned(tmp_path: Path) -> None:
    names = [f"organisation/encoder-of-some-length-{n}" for n in range(7)]
    synthetic.write_study(tmp_path, {n: {"test": 0.4, "untrained": 0.1} for n in names}, parameter="backbone")
    axis = Scale.of(Findings(StudyFolder(tmp_path))).axis().to_dict()["axis"]
    assert axis["labelAngle"] == -35
    synthetic.write_study(tmp_path / "two", {n: {"test": 0.4, "untrained": 0.1} for n in ("a", "b")}, parameter="split")
    assert Scale.of(Findings(StudyFolder(tmp_path / "two"))).axis().to_dict()["axis"]["labelAngle"] == 0


def test_ticks_are_the_values_that_were_tried_while_they_are_few(study: tuple[str, Findings]) -> None:
    name, findings = study
    axis = Scale.of(findings).axis().to_dict()["axis"]
    assert axis.get("values") == (sorted(synthetic.K_STUDY) if name == "k" else None)


PLACES = st.lists(
    st.tuples(st.floats(0, 280), st.floats(0, 320), st.text("0123456789.", min_size=1, max_size=6)),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(points=PLACES, stretch=st.floats(1, 5))
def test_labels_lie_on_nothing_in_panels_of_any_width(points: list[tuple[float, float, str]], stretch: float) -> None:
    labels = [label for *_, label in points]
    found = label_places([(x, y) for x, y, _ in points], labels, 280, 320)
    assert found[0] is not None
    # The first one has a place even where there is no room.
    boxes = [
        place.box(x * stretch, y, label)
        for place, (x, y, label) in list(zip(found, points, strict=True))[1:]
        if place is not None
    ]
    assert not any(overlap(one, other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_an_axis_covers_what_it_shows() -> None:
    assert span([3.0], log=False) == [2.96, 3.04]
    low, high = span([0.1, 10.0], log=True)
    assert 0 < low < 0.1
    assert high > 10
