"""Places in a study's folder are told by one module alone, and stay right when it is moved, those of old too."""

from __future__ import annotations

import ast
from pathlib import Path

from study.protocol.folder import StudyFolder


def test_a_place_is_found_again_in_the_folder_that_was_moved(tmp_path) -> None:
    model = tmp_path / "trials" / "0003" / "replicate-0" / "model"
    model.mkdir(parents=True)
    folder = StudyFolder(tmp_path)
    assert folder.resolved(folder.inside(model)) == str(model)
    for old in ("/studies/k/trials/0003/replicate-0/model", str(model)):
        assert folder.resolved(old) == str(model)


def test_a_copy_s_own_file_comes_before_the_original_s(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.html").touch()
    assert StudyFolder(tmp_path / "b").resolved(str(tmp_path / "a" / "report.html")) == str(
        tmp_path / "b" / "report.html"
    )


def test_what_lies_elsewhere_stays_as_it_is(tmp_path) -> None:
    folder = StudyFolder(tmp_path)
    for place in ("s3://bucket/k/trials/0003?region=eu-west-1", "/elsewhere/model"):
        assert folder.inside(place) == folder.resolved(place) == place


FOLDER = StudyFolder(Path("k"))
NAMES = {
    path.name
    for path in (
        FOLDER.journal, FOLDER.summary, FOLDER.report, FOLDER.tracking, FOLDER.identity, FOLDER.database,
        FOLDER.ledger_lock, FOLDER.driver_log,
    )
}  # fmt: skip
PARTS = {"trials", "best", "evaluation"}
"""Words as well: names only within a path."""


def spelled(source: str) -> list[str]:
    """Names of a study's folder in the strings of a module, docstrings left out."""
    tree = ast.parse(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            parts = node.value.split("/")
            found += [part for part in parts if part in NAMES or part.startswith("replicate-")]
            found += [part for part in parts if part in PARTS and len(parts) > 1]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            found += [node.right.value] if node.right.value in PARTS else []
    return found


def test_nobody_else_spells_a_path_of_a_study() -> None:
    root = Path(__file__).resolve().parents[2]
    sources = {str(path.relative_to(root)): path.read_text() for path in (root / "study").rglob("*.py")}
    assert "study/ledger/ledger.py" in sources
    found = {path: names for path, source in sources.items() if (names := spelled(source))}
    assert set(found) == {"study/protocol/folder.py"}, found


def test_spelled_paths_are_found_in_code_alone() -> None:
    source = '''
"""Reads journal.jsonl."""
a = folder / "journal.jsonl"
b = folder / "trials" / f"replicate-{number}"
c = summary["trials"], "# summary.json", "trials/0000"
'''
    assert sorted(spelled(source)) == ["journal.jsonl", "replicate-", "trials", "trials"]
