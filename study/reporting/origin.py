"""What a report has to say for its study to be run again: command, code, data, settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from study.protocol.journal import TrialBegun
from study.reporting.formatting import parameters, setting
from study.reporting.results import Findings
from trainables import trainers
from trainables.overrides import flat

OF_THE_STUDY = ("sampler", "replicates", "seed", "trainer")
"""What the journal has among a study's settings that is no key of its config."""


@dataclass(frozen=True)
class Origin:
    """Where the figures of a study come from, as its journal has it; empty where no journal does."""

    command: str | None
    """The command line of the newest launch."""
    launches: int
    commit: str | None
    changed: bool
    """Whether the checkout had changes that are in no commit."""
    versions: Mapping[str, str]
    """Package, Python or platform -> its version."""
    settings: Mapping[str, Any]
    """Dotted key of the config, or another setting of the study -> its value."""
    different: Mapping[str, Any] | None
    """Those of the config that differ from the trainer's defaults; None where the trainer is not at hand."""
    essentials: Mapping[str, str]
    """What was trained, how fast and for how long: name for readers -> value, of the best trial where there is one."""


def origin(findings: Findings) -> Origin:
    """Read the journal for the newest launch and for the config of the best trial."""
    launches = findings.storage.launches()
    if not launches:
        return Origin(None, 0, None, False, {}, {}, {}, {})
    tags, params = launches[-1].tags, launches[-1].params
    best = findings.best
    own: Mapping[str, Any] = params
    if best is not None:
        begun = [entry for entry in findings.storage.entries(TrialBegun) if entry.trial == best.number]
        own = begun[-1].params if begun else {**params, **best.params}
    searched = parameters(findings.trials, findings.parameter)
    versions = {key.removeprefix("version."): value for key, value in tags.items() if key.startswith("version.")}
    return Origin(
        command=tags.get("command"),
        launches=len(launches),
        commit=tags.get("git.commit"),
        changed=tags.get("git.dirty") == "true",
        versions={"python": tags["python"]} | versions if "python" in tags else versions,
        settings=params,
        different=_different(params, searched),
        essentials=_essentials(own, searched, params, findings),
    )


def _different(params: Mapping[str, Any], searched: list[str]) -> dict[str, Any] | None:
    """The settings with another value than the trainer's default, those that the search suggests left out."""
    try:
        config = trainers.module(params["trainer"], "config").Config()
    except (KeyError, ValueError, ImportError, ValidationError):
        return None
    defaults = json.loads(json.dumps(flat(config.model_dump(mode="json", exclude={"cache"}))))
    return {
        key: value
        for key, value in params.items()
        if key not in (*OF_THE_STUDY, *searched) and (key not in defaults or defaults[key] != value)
    }


def _essentials(
    own: Mapping[str, Any], searched: list[str], params: Mapping[str, Any], findings: Findings
) -> dict[str, str]:
    rates = {key: key.removesuffix("optimiser.lr").rstrip(".") for key in own if f".{key}".endswith(".optimiser.lr")}
    named = {"backbone": "backbone"} | {key: f"learning rate{of and f', {of}'}" for key, of in rates.items()}
    named |= {"steps": "steps", "batch_size": "batch"}
    found = {}
    for key, name in named.items():
        if key in own:
            text = f"{own[key]:g}" if isinstance(own[key], float) else setting(own[key])
            found[name] = text + (" (searched; that of the best trial)" if key in searched and findings.best else "")
    seed = params.get("seed")
    if isinstance(seed, int):
        count = int(params.get("replicates", 1))
        found["seeds"] = ", ".join(str(seed + i) for i in range(min(count, 12))) + (", …" if count > 12 else "")
    return found
