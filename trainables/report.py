"""What a recipe says of each metric that it reports: screens, tables, tests and plots follow from it.

`metrics(config)` of a trainer maps the name of each metric, without a split, to a `Metric`, the one to judge by first.
Imports neither torch nor ray.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from trainables.config import Direction, Section


class Correlation(Section):
    """A metric that is the correlation of two values of each item, not the mean of one."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    kind: Literal["linear", "rank"]
    """`linear` is Pearson's correlation, `rank` is Spearman's."""
    one: str
    """Key of `Evaluation.per_item` with the first value of each item."""
    other: str
    """Key of `Evaluation.per_item` whose values the first ones are correlated with."""


class Metric(Section):
    """A metric as readers meet it, and what may be computed from it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    label: str
    """Name of the metric for readers, such as nDCG@10."""
    meaning: str
    """What the metric measures, in half a sentence, for the legend of a report."""
    direction: Direction = "maximize"
    """Which way is better."""
    decimals: Annotated[int, Field(ge=0)] | None = None
    """Decimals that values are written with; None for as many as their size calls for."""
    cost: bool = False
    """Whether effectiveness is paid for with it, as with the operations or the bytes of a search: reports compare
    trials at equal cost, and draw the objective against it. At most one metric of a recipe is that."""
    column: bool = False
    """Whether the table of trials has a column for it; the objective and the cost have one anyway."""
    initial: bool = False
    """Whether it is a property of the model that training starts from: `Recipe.initial` measures it once, and it is on
    record as `untrained.` with its name. No objective."""
    explains: bool = False
    """Whether it may explain why groups of a study differ: their table has a column for it, and a plot draws the best
    value of the studied parameter against it. At most one metric of a recipe, an `initial` one."""
    of: str | None = None
    """The metric that this is a part of, at one `size` of it, as of a prefix of an embedding: reports draw and test
    arms at every size. Its parent is the mean over sizes."""
    size: int | None = None
    """The size at which the metric is a part of `of`, such as the length of a prefix."""
    correlation: Correlation | None = None
    """What it is of its items' values; None for the mean of those under its own name in `Evaluation.per_item`, where
    there are any."""
