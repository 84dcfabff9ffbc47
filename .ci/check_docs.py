"""Docs check: relative links lead somewhere, commands name real studies, options and config keys exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from study import run, spec, submit  # noqa: E402
from trainables import overrides, trainers  # noqa: E402

LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")
COMMAND = re.compile(r"^\s*(?:\$ )?(?:\S+/)?python -m (study\.run|study\.submit|trainables\.\w+)(.*)$", re.MULTILINE)
PARSERS = {"study.run": run.parser, "study.submit": submit.parser}


def problems(page: Path) -> list[str]:
    text = page.read_text()
    found = []
    for target, _ in LINK.findall(text):
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists():
            found.append(f"link to {target} leads nowhere")
    for module, rest in COMMAND.findall(text.replace("\\\n", " ")):
        found += _command_problems(module, rest.split("#")[0])
    return found


def _command_problems(module: str, rest: str) -> list[str]:
    options = set(re.findall(r"(--[a-z-]+)", rest))
    keys = re.findall(r"--set\s+([\w.]+)=", rest)
    if module in PARSERS:
        known = {string for action in PARSERS[module]()._actions for string in action.option_strings}
        words = [w for w in rest.split() if not w.startswith("-")]
        found = [f"`{module}` has no option {o}" for o in options - known]
        name = words[0] if words else None
        if name in spec.available():
            trainer = next(iter(spec.profiles(spec.available()[name]).values())).trainer
        else:
            trainer = None
            if name and not name.endswith(".py") and name.isidentifier() and name.islower():
                found.append(f"there is no study {name}")
    else:
        trainer, found = module.split(".")[1], []
    if trainer is not None:
        valid = overrides.keys(trainers.module(trainer, "config").Config)
        found += [f"{trainer} has no config key {key}" for key in keys if key not in valid]
    return found


def main() -> int:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    failures = [f"{page.relative_to(ROOT)}: {problem}" for page in pages for problem in problems(page)]
    print("\n".join(failures) or f"{len(pages)} pages checked")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
