"""The types of text keys in a config: whether they may hold a path, what else they may hold, what has to be there.

Trials run in working folders of their own, so a path must not stay as it was typed. `trainables.paths` finds
the keys that may hold one by these types, in any config.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from trainables.data.formats import TEXT_FORMATS, beir_files, check_file

FILE_BUILDERS = ("csv", "json", "parquet", "text")
"""Builders of `datasets` that read files: `datasets:json:PATH_OR_URL`."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_KIND = re.compile(r"[A-Za-z]\w*")

Look = Callable[[Path, Any], None]
"""(what is there, the section of the config that names it, or None) -> ValueError where it is of the wrong kind.

Files are not read: that a path is plausible is said in a second."""


class Parts(NamedTuple):
    """A text that holds a path: `datasets:json:` and `data/pairs.json`, say."""

    before: str
    path: str
    after: str


@dataclass(frozen=True, slots=True)
class Place:
    """Says, in the type of a text key, that the key may hold a path.

    Otherwise it holds one of `keywords`, KIND:REST with one of `kinds`, or, with `hub`, a hub name.
    """

    accepted: str
    """What the key accepts, in words for people."""
    look: Look | None = None
    """None for a folder of the platform's own, which need not be there."""
    keywords: tuple[str, ...] = ("embedded",)
    kinds: tuple[str, ...] = ()
    hub: bool = False

    def parts(self, text: str, base: Path | None = None) -> Parts | None:
        """Where in `text` the path is, or None where there is none; paths are relative to `base`.

        What is there is a path, even if it could be a hub name. ValueError for a hub name whose first part is a
        folder there, which is a path with a mistake in it, and for a KIND that does not exist. Without `base` the
        paths are absolute already, and a name is a name whatever is in the working folder.
        """
        if not text:
            raise ValueError(f"{text!r} names nothing; accepted are {self.accepted}")
        if text in self.keywords:
            return None
        kind, colon, rest = text.partition(":")
        if colon and rest and kind in self.kinds:
            return self._of_kind(kind, rest, base)
        if self.hub:
            return _named("", text, "", base)
        if colon and _KIND.fullmatch(kind) and (base is None or not absolute(text, base).exists()):
            near = [f"{known}:{rest}" for known in difflib.get_close_matches(kind, self.kinds, cutoff=0.85)]
            hint = f"; nearest: {near[0]}" if near and rest else ""
            raise ValueError(f"{text!r}: {kind!r} is no kind of source here{hint}; accepted are {self.accepted}")
        return Parts("", text, "")

    def located(self, text: str, base: Path) -> str:
        """`text` with an absolute path; ValueError as `parts`."""
        parts = self.parts(text, base)
        return text if parts is None else f"{parts.before}{absolute(parts.path, base)}{parts.after}"

    def check(self, text: str, section: Any = None) -> None:
        """ValueError unless what `text` names, an absolute path, is there and of the right kind.

        `section` is the part of the config that names it, where that is known.
        """
        parts = self.parts(text)
        if parts is None or self.look is None:
            return
        self.find(text, parts)
        path = Path(parts.path)
        if not parts.before:
            self.look(path, section)
        elif parts.before == "stsb:" and path.is_dir():
            raise ValueError(f"{text!r} is a folder; a file of STS-Benchmark is needed")

    def find(self, text: str, parts: Parts) -> None:
        """ValueError unless there is something at the path in `text`, whatever it is."""
        path = Path(parts.path)
        try:
            path.stat()
        except OSError as error:
            if parts.before.startswith("datasets:") and glob.glob(parts.path, recursive=True):
                return
            missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            found = f"nothing there{self._nearest(text, path)}" if missing else (error.strerror or str(error)).lower()
            raise ValueError(f"{text!r}: {found}; accepted are {self.accepted}") from None
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            raise ValueError(f"{text!r}: it may not be read by this user")

    def _of_kind(self, kind: str, rest: str, base: Path | None) -> Parts | None:
        if kind == "stsb":
            return Parts("stsb:", rest, "")
        if kind != "datasets":
            return None
        name, colon, more = rest.partition(":")
        if name not in FILE_BUILDERS:
            return _named("datasets:", name, colon + more, base)
        return Parts(f"datasets:{name}:", more, "") if more and "://" not in more else None

    def _nearest(self, text: str, path: Path) -> str:
        near = difflib.get_close_matches(path.name, self.keywords, n=1) or near_path(path)
        return f"; nearest: {near[0]}" if near else ""


@dataclass(frozen=True, slots=True)
class NoPath:
    """Says, in the type of a text key, that the key never holds a path."""


def absolute(text: str, base: Path) -> Path:
    """The path that was written as `text` in the folder `base`. Links stay as they are, unless `..` follows one."""
    try:
        path = base / Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{text!r}: {error}") from None
    return path.resolve() if ".." in path.parts else path


def typed(text: str) -> Path:
    """The path that an option of a command names."""
    return absolute(text, Path.cwd())


def near_path(path: Path) -> list[str]:
    """What was most likely meant by a path that is not there, if anything: one path, or none."""
    for part, parent in zip((path, *path.parents), path.parents, strict=False):
        if parent.is_dir() and os.access(parent, os.R_OK | os.X_OK):
            beside = [entry.name for entry in parent.iterdir()]
            return [str(parent / name) for name in difflib.get_close_matches(part.name, beside, n=1)]
    return []


def _named(before: str, name: str, after: str, base: Path | None) -> Parts | None:
    """The path that `name` is, or None if it can only be a hub name."""
    if not _HUB_NAME.fullmatch(name) or (base is not None and os.path.exists(absolute(name, base))):
        return Parts(before, name, after)
    if base is None:
        return None
    first, slash, _ = name.partition("/")
    if slash and (base / first).is_dir():
        near = near_path(base / name)
        hint = f"; nearest: {before}{os.path.relpath(near[0], base)}{after}" if near else ""
        raise ValueError(
            f"{before + name + after!r}: there is a folder {first!r} here, but nothing of that name in it{hint}. "
            "A name on the hub is meant only where there is no such folder"
        )
    return None


def _examples(path: Path, section: Any) -> None:
    check_file(path)


def _texts(path: Path, section: Any) -> None:
    check_file(path, TEXT_FORMATS)


def _collection(path: Path, section: Any) -> None:
    # A choice of a search space may come with a split of its own, which is known when the trial is.
    if section is not None or not path.is_dir():
        beir_files(path, getattr(section, "qrels_split", ""))


def _model(path: Path, section: Any) -> None:
    if not path.is_dir():
        raise ValueError(f"{path} is no folder; a model in Hugging Face format is needed")
    if not (path / "config.json").is_file():
        raise ValueError(f"{path} is a folder without config.json; Hugging Face format is needed")


_FILE = ".jsonl, .json or .tsv"
MODEL = Place("'embedded', a local folder or a hub name", _model, hub=True)
EXAMPLES = Place(
    f"embedded, ir_datasets:ID, datasets:NAME[:CONFIG] or a path to {_FILE}",
    _examples,
    kinds=("ir_datasets", "datasets"),
)
TEXTS = Place(
    f"embedded, ir_datasets:ID, datasets:NAME[:CONFIG] or a path to .txt, {_FILE}",
    _texts,
    kinds=("ir_datasets", "datasets"),
)
PAIRS = Place(
    f"embedded, stsb:FILE, datasets:NAME[:CONFIG] or a path to {_FILE}", _examples, kinds=("stsb", "datasets")
)
COLLECTION = Place("embedded, ir_datasets:ID or a folder in BEIR layout", _collection, kinds=("ir_datasets",))

Backbone = Annotated[str, MODEL]
ExampleSource = Annotated[str, EXAMPLES]
TextSource = Annotated[str, TEXTS]
PairSource = Annotated[str, PAIRS]
CollectionSource = Annotated[str, COLLECTION]
Folder = Annotated[str, Place("a folder", keywords=())]
Text = Annotated[str, NoPath()]
"""The type of keys that hold no path: names of columns and splits, prefixes and the like."""
