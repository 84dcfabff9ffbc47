"""Plain texts for pre-training, from files, `ir_datasets`, `datasets` or the sources of installed packages, alone or
mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, islice
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainables.data import assemble, formats, local
from trainables.data.config import TextData
from trainables.data.once import once
from trainables.data.order import indices
from trainables.data.packing import pack
from trainables.data.sources import source_kind
from trainables.digests import rows_digest
from trainables.places import TEXTS
from trainables.probe import spaced

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_IDENTIFYING = 1_000
"""Texts of a stream that its identity is taken from: nobody reads a stream to its end before training."""


class TextSet(Protocol):
    """Texts in batches; what is read from them is a function of seed and step alone."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """sha256; equal identities mean equal texts, of a stream equal settings and equal first texts."""
        ...

    @property
    def size(self) -> int | None:
        """Number of texts; None for a stream."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out while reading, a sentence each; a stream has not been read."""
        ...

    def texts(self, step: int, batch_size: int, seed: int) -> list[str]:
        """The global batch of `step` (from 0)."""
        ...

    def sample(self, count: int) -> list[str]:
        """At most `count` of the texts; of a stream its first."""
        ...

    def packed(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> TextSet:
        """These texts joined and cut to pieces of `max_length` tokens, see `trainables.data.packing`."""
        ...


@dataclass(frozen=True, slots=True)
class HeldTexts:
    """Texts in memory; every epoch is a new permutation of them, see `trainables.data.order`."""

    name: str
    identity: str
    held: list[str] = field(repr=False)
    notes: tuple[str, ...] = ()
    """What was left out, a sentence each."""

    @property
    def size(self) -> int:
        return len(self.held)

    def texts(self, step: int, batch_size: int, seed: int) -> list[str]:
        return [self.held[index] for index in indices(step, batch_size, len(self.held), seed)]

    def sample(self, count: int) -> list[str]:
        return spaced(self.held, count)

    def packed(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> HeldTexts:
        """Packed once, now, in the source's order: neighbours often speak of the same."""
        pieces = list(pack(self.held, tokenizer, max_length))
        if not pieces:
            raise ValueError(f"{self.name}: its {self.size} texts have no tokens with this tokenizer")
        return HeldTexts(self.name, self.identity, pieces)


class StreamedTexts:
    """Texts in the source's order, whatever the seed; after the last comes the first again.

    A step is found by its position. Going on is reading on; any other step, such as the first after a resume,
    is reached by reading the source from its start again.
    """

    size = None
    notes: tuple[str, ...] = ()

    def __init__(self, name: str, identity: str, read: Callable[[], Iterator[str]]) -> None:
        """`read` begins at the first text, the same ones in the same order each time."""
        self.name, self.identity = name, identity
        self._read = read
        self._position = -1
        self._rest: Iterator[str] = iter(())

    def texts(self, step: int, batch_size: int, seed: int) -> list[str]:
        if step < 0 or batch_size < 1:
            raise ValueError(f"step is {step} and batch_size {batch_size}; at least 0 and 1 are needed")
        if step * batch_size != self._position:
            self._seek(step * batch_size)
        batch: list[str] = []
        while len(batch) < batch_size:
            batch.extend(islice(self._rest, batch_size - len(batch)))
            if len(batch) < batch_size:
                self._rest = self._begin()
        self._position += batch_size
        return batch

    def sample(self, count: int) -> list[str]:
        return list(islice(self._begin(), count))

    def packed(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> StreamedTexts:
        """Packed while reading; a resume tokenizes again what comes before its step."""
        return StreamedTexts(self.name, self.identity, lambda: pack(self._read(), tokenizer, max_length))

    def _seek(self, position: int) -> None:
        self._rest = self._begin()
        passed = sum(1 for _ in islice(self._rest, position))
        if passed < position:
            # The source has ended, so its length is known, and whole epochs need not be read again.
            self._rest = islice(self._begin(), position % passed, None)
        self._position = position

    def _begin(self) -> Iterator[str]:
        rest = self._read()
        for first in rest:
            return chain([first], rest)
        raise ValueError(f"{self.name}: the stream has no texts")


class MixedTexts:
    """Texts of several sources, each with its share of every stretch of the sequence.

    Which source a place of the sequence has, and which of that source's texts, is a function of the place and the
    shares alone, so that a step is found whatever was read before it.
    """

    def __init__(self, first: TextSet, further: Sequence[tuple[TextSet, Fraction]]) -> None:
        """`first` has the share that `further` leave. ValueError where they leave none."""
        self._shares = [share for _, share in further]
        if sum(self._shares) >= 1:
            raise ValueError(f"shares add up to {float(sum(self._shares)):g}, which leaves {first.name} nothing")
        self._sources = [*(source for source, _ in further), first]
        self._first, self._further = first, tuple(further)
        named = [(first.name, 1 - sum(self._shares)), *((source.name, share) for source, share in further)]
        self.name = " + ".join(f"{name} ({float(share):.3g})" for name, share in named)
        self.identity = rows_digest([first.identity, *([source.identity, str(share)] for source, share in further)])
        self.notes = tuple(note for source in (first, *(source for source, _ in further)) for note in source.notes)

    @property
    def size(self) -> int | None:
        sizes = [source.size for source in self._sources]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def texts(self, step: int, batch_size: int, seed: int) -> list[str]:
        places = (place(self._shares, at) for at in range(step * batch_size, (step + 1) * batch_size))
        return [self._sources[source].texts(at, 1, seed)[0] for source, at in places]

    def sample(self, count: int) -> list[str]:
        shares = [*self._shares, 1 - sum(self._shares)]
        parts = (source.sample(ceil(share * count)) for source, share in zip(self._sources, shares, strict=True))
        return list(chain.from_iterable(parts))[:count]

    def packed(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> MixedTexts:
        """Each source packed for itself; shares are then those of pieces."""
        further = [(source.packed(tokenizer, max_length), share) for source, share in self._further]
        return MixedTexts(self._first.packed(tokenizer, max_length), further)


def place(shares: Sequence[Fraction], at: int) -> tuple[int, int]:
    """(source, its text) that a place of a mixture has, all from 0; one more source than shares has what they leave.

    The first n places hold floor(n * share) texts of the first source; what it leaves is divided among the others in
    the same way.

    >>> [place([Fraction(1, 4)], at) for at in range(4)]
    [(1, 0), (1, 1), (1, 2), (0, 0)]
    """
    rest = Fraction(1)
    for source, share in enumerate(shares):
        part = share / rest
        before = floor(at * part)
        if floor((at + 1) * part) > before:
            return source, before
        at, rest = at - before, rest - share
    return len(shares), at


@once
def mixture(first: TextData, further: Sequence[tuple[TextData, float]], cache: Path | None = None) -> TextSet:
    """The texts of all sources, of which `further` have these shares and `first` the rest; ValueError as `text_set`."""
    found = text_set(first, cache)
    if not further:
        return found
    return MixedTexts(found, [(text_set(data, cache), Fraction(str(share))) for data, share in further])


@once
def text_set(data: TextData, cache: Path | None = None) -> TextSet:
    """The texts that `data` names, not packed yet.

    Texts without anything but white space are left out. ValueError where the source is unknown, cannot be read,
    is not UTF-8, lacks the column or has no texts; it names the file and line, or the row.
    """
    kind, rest = source_kind(data.source, TEXTS)
    if kind == "embedded":
        from trainables.data.embedded import embedded_text_set

        name, texts = embedded_text_set(cache=cache)
        return _held(name, texts, data)
    if kind in ("ir_datasets", "datasets"):
        return _published(kind, rest, data)
    path = Path(rest)
    return _held(path.name, _of_file(path, data), data)


def _held(name: str, texts: Iterable[str], data: TextData) -> HeldTexts:
    held: list[str] = []
    blank = 0
    for text in texts:
        if text.strip():
            held.append(text)
        else:
            blank += 1
        if len(held) == data.limit:
            break
    if not held:
        raise ValueError(f"{data.source}: no texts; it is empty or holds nothing but white space")
    notes = [f"{name}: {assemble.counted(blank, 'text')} left out, nothing but white space"] if blank else []
    return HeldTexts(name, rows_digest(held), held, tuple(notes))


def _of_file(path: Path, data: TextData) -> Iterator[str]:
    formats.check_file(path, formats.TEXT_FORMATS)
    return _paragraphs(path) if formats.format_of(path) == ".txt" else _column(local.rows(path), data)


def _paragraphs(path: Path) -> Iterator[str]:
    """Runs of lines that are not blank."""
    paragraph: list[str] = []
    last = 0
    for number, line in local.lines(path):
        if paragraph and number > last + 1:
            yield "\n".join(paragraph)
            paragraph = []
        paragraph.append(line)
        last = number
    if paragraph:
        yield "\n".join(paragraph)


def _column(rows: Iterable[tuple[str, Mapping[str, Any]]], data: TextData) -> Iterator[str]:
    """The texts, blank ones and null among them."""
    for where, row in rows:
        if data.text not in row:
            raise assemble.no_column(row, data.text, "text", where)
        yield assemble.optional(row[data.text], f"{where}: column {data.text!r}")


def _published(kind: str, name: str, data: TextData) -> TextSet:
    from trainables.data.hub import datasets_rows, ir_datasets_texts

    def read() -> Iterator[str]:
        if kind == "ir_datasets":
            return ir_datasets_texts(name)
        rows = datasets_rows(name, data.split, data.streaming)
        numbered = ((f"datasets:{name}, row {number}", row) for number, row in enumerate(rows))
        return _column(numbered, data)

    if not data.streaming:
        return _held(name, read(), data)

    def stream() -> Iterator[str]:
        return islice(filter(str.strip, read()), data.limit)

    first = list(islice(stream(), _IDENTIFYING))
    if not first:
        raise ValueError(f"{data.source}, split {data.split!r}: no texts")
    parts = TEXTS.parts(data.source)
    # A stream is not read to its end to tell what it is; where it lies is no part of that.
    source = data.source if parts is None else f"{parts.before}{parts.after}"
    settings = [source, data.split, data.text, str(data.limit)]
    return StreamedTexts(name, rows_digest([*settings, *first]), stream)
