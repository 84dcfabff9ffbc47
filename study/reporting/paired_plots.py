"""The figures of a paired design: arms side by side, and their differences, at every size."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from matplotlib.axes import Axes

from study.reporting.paired import Contrast, Effect
from study.reporting.plot_style import CATEGORIES, GREY, INK, drawing, png

MARKERS = ("o", "^", "s", "D", "v", "P", "X")
ASIDE = 0.12
"""How far the seeds of an arm stand from the middle of a size."""


def means(contrasts: Sequence[Contrast]) -> bytes | None:
    """Mean and standard deviation over seeds of every arm at every size, with each seed as a point."""
    if not contrasts:
        return None
    metrics = list(dict.fromkeys(c.metric for c in contrasts))
    with drawing(rows=len(metrics), height=1.2 + 2.9 * len(metrics)) as (figure, panels):
        for axes, metric in zip(panels, metrics, strict=True):
            own = [c for c in contrasts if c.metric == metric]
            arms = [(own[0].reference, [e.reference for e in own[0].effects])]
            arms += [(c.other, [e.other for e in c.effects]) for c in own]
            for index, (name, values) in enumerate(arms):
                _arm(axes, index, len(arms), name, values)
            _dress(axes, own[0].effects)
            axes.set_ylabel(own[0].name)
        panels[0].legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=4, borderaxespad=0)
        return png(figure)


def _arm(axes: Axes, index: int, arms: int, name: str, values: Sequence[Sequence[float]]) -> None:
    colour, marker = CATEGORIES[index % len(CATEGORIES)], MARKERS[index % len(MARKERS)]
    middle = [fmean(seeds) for seeds in values]
    band = [stdev(seeds) for seeds in values]
    # The last place is the mean over sizes, which no line leads to.
    line = max(1, len(values) - 1)
    shift = ASIDE * (2 * index - arms + 1)
    places = [place + shift for place in range(len(values))]
    axes.plot(places[:line], middle[:line], color=colour, zorder=3)
    low, high = ([m + sign * b for m, b in zip(middle, band, strict=True)] for sign in (-1, 1))
    axes.fill_between(places[:line], low[:line], high[:line], color=colour, alpha=0.15, linewidth=0)
    for place, seeds, mean, deviation in zip(places, values, middle, band, strict=True):
        axes.plot([place] * len(seeds), seeds, linestyle="", marker=marker, markersize=3.5, color=colour, alpha=0.5,
                  zorder=2)  # fmt: skip
        axes.errorbar(place, mean, yerr=deviation, color=colour, marker=marker, markersize=7, markeredgecolor="white",
                      capsize=3, zorder=4)  # fmt: skip
    axes.plot([], [], color=colour, marker=marker, label=name)


def differences(contrasts: Sequence[Contrast]) -> bytes | None:
    """Mean difference to the reference at every size with its interval, and each seed's difference."""
    if not contrasts:
        return None
    with drawing(rows=len(contrasts), height=1.0 + 2.4 * len(contrasts)) as (figure, panels):
        for axes, contrast in zip(panels, contrasts, strict=True):
            axes.axhline(0, color=INK, linewidth=1)
            for place, effect in enumerate(contrast.effects):
                colour = CATEGORIES[1] if effect.distinct else GREY
                axes.plot([place + ASIDE] * len(effect.gaps), effect.gaps, linestyle="", marker=".", color=colour,
                          alpha=0.5)  # fmt: skip
                axes.errorbar(place, effect.gap, yerr=[[effect.gap - effect.low], [effect.high - effect.gap]],
                              color=colour, marker="o" if effect.distinct else "s", capsize=4)  # fmt: skip
            _dress(axes, contrast.effects)
            axes.set_title(f"{contrast.other} − {contrast.reference}", loc="left")
            axes.set_ylabel(f"{contrast.name}, difference")
        return png(figure)


def _dress(axes: Axes, effects: Sequence[Effect]) -> None:
    whole = "mean" if len(effects) > 1 else ""
    axes.set_xticks(range(len(effects)), [whole if e.size is None else str(e.size) for e in effects])
    axes.set_xlim(-0.5, len(effects) - 0.5)
    if len(effects) > 1 and axes.get_subplotspec().is_last_row():  # type: ignore[union-attr]
        axes.set_xlabel("size")
