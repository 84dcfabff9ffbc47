"""sha256, as hexadecimal text, of files, texts and JSON values.

Digests are the identities of data sets, models and caches, and studies keep them: what one is made of never changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def file_digest(path: Path) -> str:
    """Digest of a file's bytes.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     file_digest(Path(file.name)) == text_digest("")
    True
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_digest(text: str) -> str:
    """Digest of a text in UTF-8.

    >>> text_digest("")[:12]
    'e3b0c44298fc'
    """
    return hashlib.sha256(text.encode()).hexdigest()


def json_digest(value: Any) -> str:
    """Digest of a JSON value, whatever the order of its keys.

    >>> json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1}) == text_digest('{"a":1,"b":[2]}')
    True
    """
    return text_digest(json.dumps(value, sort_keys=True, separators=(",", ":")))


def lines_digest(lines: Iterable[str]) -> str:
    r"""Digest of lines, each followed by a newline.

    >>> lines_digest(["a", "b"]) == text_digest("a\nb\n")
    True
    """
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def rows_digest(rows: Iterable[Any]) -> str:
    r"""Digest of JSON values, one on each line.

    >>> rows_digest([["a", 1], "b"]) == text_digest('["a",1]\n"b"\n')
    True
    """
    return lines_digest(json.dumps(row, separators=(",", ":")) for row in rows)


def parts_digest(parts: Iterable[str]) -> str:
    """Digest of texts in order; each goes in with its length, so that ("a", "b") differs from ("ab",).

    >>> parts_digest(["a", "b"]) == parts_digest(["ab"])
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()
