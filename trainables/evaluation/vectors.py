"""Vectors on disk: written block by block and read block by block, so that memory is one block.

A folder holds raw little-endian arrays in the order in which the blocks were written:

    positions.bin   int64 (rows,): which text each row is
    values.bin      dense: (rows, dim); sparse: the numbers other than zero, row after row; ragged: (vectors, dim)
    columns.bin     sparse: the column of each value, uint16 up to 65,536 dimensions, int32 above
    lengths.bin     sparse: int32 (rows,), values of each row; ragged: int32 (rows,), vectors of each row

Which of them there are is the scorer's; see `trainables.evaluation.scoring`. A dense vector of 768 takes 3,072 bytes
in float32 (1,536 in float16), a passage as 80 vectors of 128 takes 40,960 (20,480).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainables.evaluation.measurement import Precision
from trainables.evaluation.scoring import Scorer


@dataclass(frozen=True, slots=True)
class Layout:
    """What the files of a folder hold; rows of a block are `block`, of the last one the rest."""

    rows: int
    dim: int
    block: int
    precision: Precision


class Writer:
    """Appends blocks of vectors to the files of a folder; `close` returns their layout."""

    def __init__(self, folder: Path, scorer: Scorer, precision: Precision) -> None:
        self.scorer, self.precision = scorer, precision
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {
            name: self._open.enter_context((folder / name).open("wb")) for name in ("positions.bin", *scorer.files)
        }
        self._blocks: list[int] = []
        self._dim = 0

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self._files)

    def add(self, positions: Sequence[int], vectors: Any) -> None:
        """`vectors` of the texts at `positions`. ValueError where a finite number is too large for float16."""
        self._dim = vectors.shape[1]
        self._blocks.append(len(positions))
        np.asarray(positions, dtype="<i8").tofile(self._files["positions.bin"])
        for name, values in self.scorer.arrays(vectors, self.precision).items():
            values.tofile(self._files[name])

    def close(self) -> Layout:
        self._open.close()
        return Layout(sum(self._blocks), self._dim, self._blocks[0], self.precision)


def blocks(folder: Path, scorer: Scorer, layout: Layout) -> Iterator[tuple[list[int], Any]]:
    """(positions, vectors as `Scorer.block` gives them) of each block of a folder, as they were written."""
    with ExitStack() as opened:
        files = {name: opened.enter_context((folder / name).open("rb")) for name in ("positions.bin", *scorer.files)}

        def take(name: str, kind: str, count: int) -> np.ndarray:
            return np.fromfile(files[name], kind, count)

        for start in range(0, layout.rows, layout.block):
            rows = min(layout.block, layout.rows - start)
            yield take("positions.bin", "<i8", rows).tolist(), scorer.block(take, rows, layout.dim, layout.precision)
