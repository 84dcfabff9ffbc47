"""Studies of how to train retrieval models: decided, run and recorded.

`study.open` gives a notebook or a script what a study has found. Importing this package imports no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from study.notebook import RecordedStudy

__version__ = "0.1.0"


def open(folder: str | PathLike[str]) -> RecordedStudy:
    """The study in a folder, such as `studies/splade_k_search`, finished or running.

    A relative path is one from the working folder, `~` is the user's home. Raises ValueError with the nearest studies
    where the folder is none.
    """
    from study.notebook import RecordedStudy

    return RecordedStudy(folder)
