"""Vectors on disk: written block by block and read block by block, so that memory is one block.

A folder holds raw little-endian arrays in the order in which the blocks were written:

    positions.bin   int64 (rows,): which document each row is
    values.bin      dense: (rows, dim); sparse: the numbers other than zero, row after row
    columns.bin     sparse: the column of each value, uint16 up to 65,536 dimensions, int32 above
    lengths.bin     sparse: int32 (rows,), values of each row

Together these are a matrix in CSR form. A SPLADE vector with 150 of 30,522 terms takes 900 bytes in float32
(600 in float16) where a dense row would take 122,088; a dense one of 768 takes 3,072 (1,536).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from scipy.sparse import csr_matrix

from trainables.evaluation.measurement import Precision


@dataclass(frozen=True, slots=True)
class Layout:
    """What the files of a folder hold; rows of a block are `block`, of the last one the rest."""

    rows: int
    dim: int
    block: int
    sparse: bool
    precision: Precision

    @property
    def column_type(self) -> str:
        return "<u2" if self.dim <= 2**16 else "<i4"

    @property
    def value_type(self) -> str:
        return "<f2" if self.precision == "float16" else "<f4"

    @property
    def files(self) -> tuple[str, ...]:
        sparse = ("columns.bin", "lengths.bin") if self.sparse else ()
        return ("positions.bin", "values.bin", *sparse)


class Writer:
    """Appends blocks of vectors to the files of a folder; `close` returns their layout."""

    def __init__(self, folder: Path, sparse: bool, precision: Precision) -> None:
        self.folder, self.sparse, self.precision = folder, sparse, precision
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {}
        self._blocks: list[int] = []
        self._dim = 0

    def add(self, positions: Sequence[int], vectors: torch.Tensor) -> None:
        """`vectors` (rows, dim). ValueError where one of its finite numbers is too large for float16."""
        self._dim = vectors.shape[1]
        self._blocks.append(len(positions))
        self._append("positions.bin", np.asarray(positions, dtype="<i8"))
        values = vectors.float()
        if self.precision == "float16":
            values = values.half()
            if (values.isinf() & vectors.isfinite()).any():
                largest = vectors.abs().max()
                raise ValueError(f"a vector has a number of {largest:g}, too large for float16; use float32")
        if self.sparse:
            kept = values != 0
            self._append("columns.bin", kept.nonzero()[:, 1].cpu().numpy().astype(self._layout().column_type))
            self._append("lengths.bin", kept.sum(1).cpu().numpy().astype("<i4"))
            values = values[kept]
        self._append("values.bin", values.cpu().contiguous().numpy())

    def close(self) -> Layout:
        self._open.close()
        return self._layout()

    def _layout(self) -> Layout:
        return Layout(sum(self._blocks), self._dim, self._blocks[0], self.sparse, self.precision)

    def _append(self, name: str, values: np.ndarray) -> None:
        if name not in self._files:
            self._files[name] = self._open.enter_context((self.folder / name).open("wb"))
        values.tofile(self._files[name])


class Reader:
    """The blocks of a folder as they were written."""

    def __init__(self, folder: Path, layout: dict[str, Any]) -> None:
        self.folder, self.layout = folder, Layout(**layout)

    def dense(self) -> Iterator[tuple[list[int], torch.Tensor]]:
        """(positions, vectors (rows, dim) float32) of each block."""
        layout = self.layout
        with (self.folder / "values.bin").open("rb") as file:
            for positions in self._positions():
                values = np.fromfile(file, layout.value_type, len(positions) * layout.dim)
                yield positions, torch.from_numpy(values.astype(np.float32).reshape(len(positions), layout.dim))

    def sparse(self) -> Iterator[tuple[list[int], csr_matrix]]:
        """(positions, vectors (rows, dim) float64) of each block."""
        layout = self.layout
        with ExitStack() as opened:
            lengths, columns, values = (
                opened.enter_context((self.folder / name).open("rb"))
                for name in ("lengths.bin", "columns.bin", "values.bin")
            )
            for positions in self._positions():
                ends = np.fromfile(lengths, "<i4", len(positions)).cumsum(dtype=np.int64)
                parts = (
                    np.fromfile(values, layout.value_type, ends[-1]).astype(np.float64),
                    np.fromfile(columns, layout.column_type, ends[-1]).astype(np.int32),
                    np.concatenate([[0], ends]),
                )
                yield positions, csr_matrix(parts, shape=(len(positions), layout.dim))

    def _positions(self) -> Iterator[list[int]]:
        layout = self.layout
        with (self.folder / "positions.bin").open("rb") as file:
            for start in range(0, layout.rows, layout.block):
                yield np.fromfile(file, "<i8", min(layout.block, layout.rows - start)).tolist()
