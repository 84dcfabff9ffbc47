"""Folders of files on an object store, by whatever URI `pyarrow.fs` opens: S3, Google Cloud, and `fsspec+` others.

An object appears whole or not at all, and nothing can be renamed: a folder is whole when its last file is there.
A store that does not answer stalls the caller, and fails it only after `PATIENCE_S`.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from trainables.errors import told

log = logging.getLogger(__name__)

PATIENCE_S, PAUSE_S = 3600.0, 5.0
"""How long, and with which pauses, a store that fails is asked again; pyarrow itself tries for some seconds.

A trial that waits holds its workers, one that fails loses what it has computed, and an outage would fail them all.
"""
CHUNK = 2**23
SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""What pyarrow opens by itself."""

SECRET = re.compile("(secret|password|token|sas|key)[a-z_]*=", re.IGNORECASE)

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
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise ValueError(f"--checkpoints {uri}: no URI ({error}); an example is s3://BUCKET/FOLDER") from None
    # In URIs of Azure and HDFS, what stands before the @ is a container or a user.
    named = parts.username and parts.scheme in ("s3", "gs", "gcs")
    if named or parts.password or SECRET.search(parts.query):
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
    except Exception as error:
        raise ValueError(f"--checkpoints {uri}: cannot write there ({told(error, 300)})") from error


def place_of(uri: str) -> str:
    """The URI without its settings, by which two of them name the same folder.

    >>> place_of("s3://bucket/studies/?region=eu-west-1")
    's3://bucket/studies'
    """
    return uri.partition("?")[0].rstrip("/")


def fetched(place: str, folder: Path, patience_s: float) -> Path:
    """The local folder that a path or URI stands for; what is on an object store is copied into `folder`.

    Raises OSError where the store has failed for `patience_s` seconds.
    """
    if "://" not in place:
        return Path(place)
    target = folder / PurePosixPath(place_of(place)).name
    if not target.exists():
        aside = target.with_name(f".{target.name}")
        shutil.rmtree(aside, ignore_errors=True)
        ObjectStore(place, patience_s).download("", aside)
        aside.rename(target)
    return target


class ObjectStore:
    """The folder at `uri`; names are relative to it, with slashes."""

    def __init__(self, uri: str, patience_s: float | None = None) -> None:
        from pyarrow import fs

        self.uri = uri
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
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

    def files(self) -> list[str]:
        """Names of the files in this folder, sorted."""
        return sorted(PurePosixPath(info.path).name for info in self._infos("", False) if info.is_file)

    def has(self, name: str) -> bool:
        return bool(self._patiently(lambda: self._fs.get_file_info(self._place(name)).is_file))

    def read(self, name: str) -> bytes | None:
        """Content of a small object; None where there is none."""
        if not self.has(name):
            return None

        def read() -> bytes:
            with self._fs.open_input_stream(self._place(name)) as stream:
                return stream.read()

        return self._patiently(read)

    def write(self, name: str, content: bytes) -> None:
        def write() -> None:
            with self._fs.open_output_stream(self._place(name)) as stream:
                stream.write(content)

        self._patiently(write)

    def upload(self, folder: Path, name: str, last: str, check: Callable[[], None]) -> None:
        """Copy a local folder, the file `last` at the end; `check` is called before each file and may raise."""
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        for file in sorted(files, key=lambda file: file == last):
            check()
            self._patiently(lambda: self._upload(folder / file, f"{name}/{file}"))  # noqa: B023

    def download(self, name: str, folder: Path) -> None:
        """Copy a folder to a local one, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        origin = PurePosixPath(self._place(name))
        for info in self._infos(name, True):
            if info.is_file:
                target = folder / PurePosixPath(info.path).relative_to(origin)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._patiently(lambda: self._download(info.path, target))  # noqa: B023

    def remove(self, name: str = "") -> None:
        """Remove a folder and everything in it; nothing happens where there is none."""

        def remove() -> None:
            # Not file by file: deleting an object of a folder on S3 puts the folder itself there, empty.
            if self._fs.get_file_info(self._selector(name, True)):
                self._fs.delete_dir(self._place(name))

        self._patiently(remove)

    def _infos(self, name: str, recursive: bool) -> list[Any]:
        return self._patiently(lambda: self._fs.get_file_info(self._selector(name, recursive)))

    def _selector(self, name: str, recursive: bool) -> Any:
        from pyarrow import fs

        return fs.FileSelector(self._place(name), recursive=recursive, allow_not_found=True)

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

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        """The answer of a store that may be away for a while."""
        deadline = None
        while True:
            try:
                return ask()
            except (FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                now = time.monotonic()
                deadline = deadline or now + self._patience_s
                if now >= deadline:
                    raise
                log.warning("the object store fails, tried again in %g s: %s", PAUSE_S, told(error, 300))
                time.sleep(PAUSE_S)
