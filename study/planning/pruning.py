"""What a plan says that a study's pruner can save."""

from __future__ import annotations

from study.ledger.rehearsal import saved
from study.spec import Study


def outlook(study: Study) -> list[str]:
    """A line for a plan: which share of their steps searched trials need not run; none where nothing is pruned.

    It depends on how many run at a time: a trial is judged by those that came as far before it.
    """
    kind, searched = study.pruner.kind, study.budget.trials - len(study.controls)
    if kind == "none" or searched < 1:
        return []
    groups = len(study.groups)
    wanted = study.resources.concurrency
    cases = {"one after the other": 1, f"all {study.trials} at once": searched} if wanted is None else {
        f"{wanted} at a time": min(searched, -(-wanted // groups))
    }  # fmt: skip
    said = []
    for how, at_once in cases.items():
        share = saved(study, searched, at_once)
        early = kind == "median" and not share
        said.append(f"about {share:.0%} {how}" + (" (none has finished when the others are judged)" if early else ""))
    where = f" of {'each group' if groups > 1 else 'the study'}, where curves do not cross: "
    return [f"pruning     {kind} saves of the steps of the {searched} searched trials{where}{', '.join(said)}"]
