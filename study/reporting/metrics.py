"""The metrics of a study by what its recipe declares of them: nothing here or elsewhere in study/ knows one by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from study.reporting.formatting import named, show
from trainables.report import Correlation, Metric


@dataclass(frozen=True)
class DeclaredMetrics:
    """Looks up what is said of a metric, whatever split stands before its name; of others it knows the name alone."""

    declared: Mapping[str, Metric]

    def label(self, key: str) -> str:
        """Name of a metric for readers.

        >>> metrics = DeclaredMetrics({"size": Metric(label="Size", meaning="")})
        >>> metrics.label("test.size"), metrics.label("a_at_10")
        ('test Size', 'a@10')
        """
        *split, name = key.split(".")
        found = self.declared.get(name)
        return named(key) if found is None else " ".join([*split, found.label])

    def show(self, key: str, value: float | None) -> str:
        """A value of a metric as readers see it."""
        found = self.declared.get(key.rpartition(".")[2])
        if value is None or found is None or found.decimals is None:
            return show(value)
        return f"{value:,.{found.decimals}f}"

    def meanings(self, keys: Iterable[str]) -> dict[str, str]:
        """Name for readers -> what it is, of each declared metric that is no part of another, once for all splits."""
        found = (self.declared.get(name) for name in dict.fromkeys(key.rpartition(".")[2] for key in keys))
        return {metric.label: metric.meaning for metric in found if metric is not None and metric.of is None}

    def more(self, key: str) -> bool:
        """Whether a larger value of a metric is better; where nothing is declared of the metric, it is."""
        found = self.declared.get(key.rpartition(".")[2])
        return found is None or found.direction == "maximize"

    @property
    def cost(self) -> str | None:
        """The metric of what effectiveness costs, such as the operations of a search; None where the recipe reports
        none."""
        return next((name for name, metric in self.declared.items() if metric.cost), None)

    @property
    def explains(self) -> str | None:
        """The metric that may explain why groups of a study differ; None where the recipe reports none."""
        return next((name for name, metric in self.declared.items() if metric.explains), None)

    @property
    def columns(self) -> list[str]:
        """The metrics that the table of trials shows beside the objective and the cost."""
        return [name for name, metric in self.declared.items() if metric.column]

    def sizes(self, key: str) -> dict[int, str]:
        """Size -> the key of this metric at that size, the smallest first; on the same split."""
        split, dot, name = key.rpartition(".")
        parts = ((part.size, f"{split}{dot}{other}") for other, part in self.declared.items() if part.of == name)
        return dict(sorted((size, part) for size, part in parts if size is not None))

    def correlation(self, key: str) -> Correlation | None:
        """The correlation that a metric is of the values of its items; None where it is their mean."""
        found = self.declared.get(key.rpartition(".")[2])
        return None if found is None else found.correlation
