"""Runs `docs/notebook.ipynb` and keeps what its cells show: `python docs/notebook.py FOLDER`.

FOLDER is where `python -m study.run splade_k_search` has run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_suffix(".ipynb")
STILL = "import altair; altair.renderers.enable('png')"
"""Charts as pictures: the interactive ones of a notebook fetch the program that draws them."""


def executed(folder: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of its cells, run in `folder`; raises nbclient's error where a cell fails.

    Progress bars are left out, and so is what differs from one machine to the next.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(STILL))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    del notebook.cells[0]
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.metadata, cell.execution_count = {}, number + 1
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number + 1
    return notebook


def main() -> int:
    nbformat.write(executed(Path(sys.argv[1])), NOTEBOOK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
