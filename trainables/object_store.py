"""Folders of files on an object store, by whatever URI `pyarrow.fs` opens: S3, Google Cloud, and `fsspec+` others.

An object appears whole or not at all, and nothing can be renamed: a folder is whole when its last file is there.
A store that does not answer stalls the caller for some minutes, and only then fails it.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

PATIENCE_S, PAUSE_S = 300.0, 5.0
"""How long, and with which pauses, a store that fails is asked again; pyarrow itself tries for some seconds."""
CHUNK = 2**23
SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""What pyarrow opens by itself."""

Answer = TypeVar("Answer")


def below(uri: str, *names: str) -> str:
    """The URI of something in the folder at `uri`; options behind a question mark stay.

    >>> below("s3://bucket/studies/?region=eu-west-1", "trials", "0003")
    's3://bucket/studies/trials/0003?region=eu-west-1'
    """
    place, mark, settings = uri.partition("?")
    return "/".join((place.rstrip("/"), *names)) + mark + settings


def check_uri(uri: str, probe: bool) -> None:
    """Raise ValueError unless checkpoints may be kept at this URI; with `probe`, one file is written and removed."""
    parts = urlsplit(uri)
    if parts.username or parts.password:
        raise ValueError(
            f"--checkpoints {parts.scheme}://...: credentials in a URI end up in logs; set them in the environment "
            "of the nodes (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for S3)"
        )
    if parts.scheme in ("", "file") or not parts.netloc:
        raise ValueError(
            f"--checkpoints {uri}: name a folder of an object store, such as s3://BUCKET/FOLDER or "
            "gs://BUCKET/FOLDER; checkpoints in a file system are kept in --storage"
        )
    if parts.scheme not in SCHEMES and not parts.scheme.startswith("fsspec+"):
        raise ValueError(f"--checkpoints {uri}: unknown kind; accepted are {', '.join(SCHEMES)} and fsspec+PROTOCOL")
    if not probe:
        return
    try:
        ObjectStore(uri).probe()
    except (OSError, ValueError, ImportError) as error:
        raise ValueError(f"--checkpoints {uri}: cannot write there ({_one_line(error)})") from error


def fetched(place: str, folder: Path) -> Path:
    """The local folder that a path or URI stands for; what is on an object store is copied to `folder/model`."""
    if "://" not in place:
        return Path(place)
    target = folder / PurePosixPath(place.partition("?")[0]).name
    if not target.exists():
        aside = target.with_name(f".{target.name}")
        shutil.rmtree(aside, ignore_errors=True)
        ObjectStore(place).download("", aside)
        aside.rename(target)
    return target


class ObjectStore:
    """The folder at `uri`; names are relative to it, with slashes."""

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        self.uri = uri
        self._fs, path = fs.FileSystem.from_uri(uri)
        self._root = PurePosixPath(path)

    def probe(self) -> None:
        """Write an object and remove it; raises OSError at once where that fails."""
        place = self._place(f".probe-{time.time_ns()}")
        with self._fs.open_output_stream(place) as stream:
            stream.write(b"")
        self._fs.delete_file(place)

    def folders(self) -> list[str]:
        """Names of the folders in this one, sorted."""
        return sorted(PurePosixPath(info.path).name for info in self._infos("", False) if not info.is_file)

    def has(self, name: str) -> bool:
        return bool(_patiently(lambda: self._fs.get_file_info(self._place(name)).is_file))

    def read(self, name: str) -> bytes | None:
        """Content of a small object; None where there is none."""
        if not self.has(name):
            return None

        def read() -> bytes:
            with self._fs.open_input_stream(self._place(name)) as stream:
                return stream.read()

        return _patiently(read)

    def write(self, name: str, content: bytes) -> None:
        def write() -> None:
            with self._fs.open_output_stream(self._place(name)) as stream:
                stream.write(content)

        _patiently(write)

    def upload(self, folder: Path, name: str, last: str | None = None, before_last: Callable[[], Any] = int) -> None:
        """Copy a local folder; `before_last()` is called before the file `last`, which says that the copy is whole."""
        files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        for file in sorted(files, key=lambda file: str(file) == last):
            if str(file) == last:
                before_last()
            _patiently(lambda: self._upload(folder / file, f"{name}/{file.as_posix()}"))  # noqa: B023

    def download(self, name: str, folder: Path) -> None:
        """Copy a folder to a local one, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        origin = PurePosixPath(self._place(name))
        for info in self._infos(name, True):
            if info.is_file:
                target = folder / PurePosixPath(info.path).relative_to(origin)
                target.parent.mkdir(parents=True, exist_ok=True)
                _patiently(lambda: self._download(info.path, target))  # noqa: B023

    def remove(self, name: str = "") -> None:
        """Remove a folder and everything in it; nothing happens where there is none."""
        # Not file by file: deleting an object of a folder on S3 puts the folder itself there, empty.
        if self._infos(name, True):
            _patiently(lambda: self._fs.delete_dir(self._place(name)))

    def _infos(self, name: str, recursive: bool) -> list[Any]:
        from pyarrow import fs

        selector = fs.FileSelector(self._place(name), recursive=recursive, allow_not_found=True)
        return _patiently(lambda: self._fs.get_file_info(selector))

    def _place(self, name: str) -> str:
        return str(self._root / name)

    def _upload(self, file: Path, name: str) -> None:
        with file.open("rb") as source, self._fs.open_output_stream(self._place(name)) as stream:
            while chunk := source.read(CHUNK):
                stream.write(chunk)

    def _download(self, path: str, target: Path) -> None:
        with self._fs.open_input_stream(path) as stream, target.open("wb") as file:
            while chunk := stream.read(CHUNK):
                file.write(chunk)


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """The answer of a store that may be away for a while."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except OSError as error:
            if time.monotonic() > deadline:
                raise
            log.warning("the object store fails, tried again in %g s: %s", PAUSE_S, _one_line(error))
            time.sleep(PAUSE_S)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
