"""Makes the small data set that the tests carry, from the docstrings and functions of this project.

    python tests/assets/carried/make.py

Whoever runs it gets other texts as the code changes; the golden losses belong to the files as they are in git.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TRAINING, DOCUMENTS, QUERIES = 64, 60, 20


def functions() -> list[tuple[str, str, str]]:
    """(module, first sentence of the docstring, code without the docstring) of the documented functions, in order."""
    found = []
    for path in sorted((*ROOT.glob("trainables/**/*.py"), *ROOT.glob("study/**/*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node) or len(node.body) < 2:
                continue
            sentence = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            node.body = node.body[1:]
            found.append((str(path.relative_to(ROOT)), sentence, ast.unparse(node)))
    return found


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    found = functions()
    step = len(found) // (TRAINING + DOCUMENTS)
    chosen = found[:: max(1, step)][: TRAINING + DOCUMENTS]
    training, held_out = chosen[:TRAINING], chosen[TRAINING:]
    write(HERE / "pairs.jsonl", [{"query": sentence, "positive": code} for _, sentence, code in training])
    write(
        HERE / "collection" / "corpus.jsonl",
        [{"_id": f"d{n}", "title": "", "text": code} for n, (_, _, code) in enumerate(held_out)],
    )
    asked = list(enumerate(held_out))[:QUERIES]
    write(HERE / "collection" / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, (_, text, _) in asked])
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n, _ in asked)
    (HERE / "collection" / "qrels").mkdir(exist_ok=True)
    (HERE / "collection" / "qrels" / "test.tsv").write_text(qrels)
    # A sentence with its own code, with that of a neighbour, and with one from far away.
    for name, part in (("train", training), ("validation", held_out[:30]), ("test", held_out[30:])):
        rows = []
        for n, (_, sentence, code) in enumerate(part):
            near, far = part[(n + 1) % len(part)][2], part[(n + len(part) // 2) % len(part)][2]
            rows += [
                {"sentence1": sentence, "sentence2": other, "label": label}
                for other, label in ((code, 5.0), (near, 2.0), (far, 0.0))
            ]
        write(HERE / "graded" / f"{name}.jsonl", rows)
    (HERE / "texts.txt").write_text("\n\n".join(f"{sentence}\n{code}" for _, sentence, code in training) + "\n")


if __name__ == "__main__":
    main()
