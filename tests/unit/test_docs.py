"""The check of README and docs: a command that does not work, or that nothing has tried, is found."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.imports import LIBRARIES, MAY_IMPORT

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check():
    found = importlib.util.spec_from_file_location("check_docs", ROOT / ".ci" / "check_docs.py")
    module = importlib.util.module_from_spec(found)
    sys.modules["check_docs"] = module
    found.loader.exec_module(module)
    return module


STUDY_FILE = """<!-- file: mine.py -->
```python
from study.spec import Budget, Objective, Study
from trainables.splade.config import Config
STUDY = {"first": Study(question="?", trainer="splade", parameter="k", config=Config(),
    space=lambda trial: trial.suggest_float("k", 1, 2), objectives=(Objective(name="ndcg_at_10"),),
    budget=Budget(trials=1))}
```
"""


@pytest.mark.parametrize(
    "page",
    [
        "    python -m study.run splade_k_search --set steps=4 --trials 2",
        "```sh\n$ python -m study.run splade_k_search \\\n    --set steps=4\n```",
        "```python\nanything()\n```",
        "    MLFLOW_TRACKING_URI=http://HOST python -m study.run angle_split_search | head -1",
        "<!-- needs: a cluster -->\n\n    ray start --head\n    python -m study.submit NAME --address http://HEAD:8265",
        "    make unit",
        "`study/run.py`, `study/{run,submit}.py`, `study/ledger/*.py`, `trainables/NAME/config.py`",
        "Type `python -m study.evaluate NAME --trials best`.",
        "    python -m study.evaluate splade_k_search --suite data/mine --trials best",
        f"{STUDY_FILE}\n    python -m study.run mine.py --set steps=4",
        "[one](index.md), [two](index.md#words), [three](https://example.org/x#y)",
    ],
)
def test_what_works_is_left_alone(check, page) -> None:
    assert check.problems(ROOT / "docs" / "page.md", page) == []


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("    python -m study.run splade_k_serch", "did you mean 'splade_k_search'"),
        ("    python -m study.run splade_k_search --profile papers", "it has embedded, search, paper"),
        ("    python -m study.run splade_k_search --trails 3", "no option --trails"),
        ("    python -m study.run splade_k_search --trial 3", "no option --trial"),
        ("    python -m study.run splade_k_search --set stepz=3", "did you mean 'steps'"),
        ("    python -m study.run splade_k_search --set steps=0", "steps=0"),
        ("    python -m study.run splade_k_search --set k=2", "the search space suggests k"),
        ("    python -m study.run splade_k_search --resources workers=0", "workers=0"),
        (f"{STUDY_FILE}\n    python -m study.run mine.py --set lr=1", "unknown key 'lr'"),
        ("    python -m trainables.retromae --set decoding=basics", "decoding='basics'"),
        ("Type `python -m trainables.splade --sets k=2`.", "no option --sets"),
        ("    python -m study.submit splade_k_search --address http://HEAD:8265", "needs: a cluster"),
        ("    python -m study.evaluate splade_k_search --suite beir13 --trials best", "needs: a hub"),
        ("    kubectl apply -f deploy/rayjob.yaml", "neither executed by a test nor marked"),
        ("```\npip install something\n```", "neither executed by a test nor marked"),
        ("<!-- needs: a hub -->\n\nA sentence.\n\n    pip install something", "neither executed by a test nor marked"),
        ("    python -m benchmarks.nothing", "there is no benchmarks.nothing"),
        ("    python -m benchmarks.jsts_encoder --sleep 3", "no option --sleep"),
        ("    make everything", "there is no target everything"),
        ("    python -m study.run 'splade", "no shell reads it"),
        ("`study/run.py` and `study/walk.py`", "there is no study/walk.py"),
        ("`trainables/{loop,collapse,noose}.py`", "there is no trainables/noose.py"),
        ("`study/walk*.py`", "there is no study/walk*.py"),
        ("[one](nothing.md)", "link to nothing.md leads nowhere"),
        ("[one](../README.md)", "leaves docs/"),
        ("    python -m tests.fixtures.late_interaction --set stepz=2", "did you mean 'steps'"),
        ("[one](index.md#nothing)", "no such heading"),
    ],
)
def test_what_does_not_is_found(check, page, told) -> None:
    (found,) = check.problems(ROOT / "docs" / "page.md", page)
    assert told in found


def test_the_page_has_the_rooms_and_the_libraries_of_the_import_test(check) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| ")]
    rows = {first: others for _, first, *others in lines}
    for library, modules in LIBRARIES.items():
        assert set(check.modules(rows[library][0])) == modules
    for room, allowed in MAY_IMPORT.items():
        if room != "ground":
            (row,) = (cells for name, cells in rows.items() if re.match(rf"`{room}(/|\.py)`", name))
            named = {name.removesuffix(".py") for name in re.findall(r"`([\w.]+)`", row[1])}
            assert named == set(allowed) - {"ground"}, room


def test_a_setting_that_nobody_describes_is_refused(check, tmp_path, monkeypatch) -> None:
    (tmp_path / "silent.py").write_text(
        "from pydantic import BaseModel\n\nclass Silent(BaseModel):\n    key: int = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import silent

    with pytest.raises(ValueError, match=r"silent\.Silent\.key has no docstring"):
        check.reference.docstrings(silent.Silent)


def test_defaults_are_those_of_the_place(check) -> None:
    """A section has other defaults where a trainer gives it some."""
    page = check.reference.settings_page()
    assert "| `optimiser.lr` | `0.002` |" in page.partition("## angle")[2].partition("## retromae")[0]
    assert "| `optimiser.lr` | `0.001` |" in page.partition("## splade")[2]
