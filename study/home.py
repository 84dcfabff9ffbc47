"""A home for processes of users who have none, as in containers that run under a number that nobody knows."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

CACHES = {"HF_HOME": ".cache/huggingface", "IR_DATASETS_HOME": ".ir_datasets"}
"""Variable -> folder in a home that is worth reading even where nothing can be written."""


def provide() -> None:
    """See that HOME names a folder that can be written, for this process and those that it starts.

    Libraries keep settings and caches there, and fail or write into the working folder where they cannot. Where the
    user's own home is missing or read-only, it is a folder among the temporary files that is kept between launches.
    Raises ValueError where there can be none.
    """
    known = _known()
    if known is None and not {"LOGNAME", "USER", "LNAME", "USERNAME"} & os.environ.keys():
        # Libraries ask for a name, and raise where the system has none.
        os.environ["USER"] = f"uid-{os.getuid()}"
    home = os.environ.get("HOME") or (known.pw_dir if known else "")
    if home and os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK):
        os.environ["HOME"] = home
        return
    for name, folder in CACHES.items():
        if home and (Path(home) / folder).is_dir():
            os.environ.setdefault(name, str(Path(home) / folder))
    os.environ["HOME"] = str(_made())


def _known() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None


def _made() -> Path:
    try:
        place = Path(tempfile.gettempdir()) / f"study-home-{os.getuid()}"
        place.mkdir(mode=0o700, exist_ok=True)
        # Among the files of others somebody else may have made it.
        return place if place.stat().st_uid == os.getuid() else Path(tempfile.mkdtemp(prefix="study-home-"))
    except OSError as error:
        raise ValueError(
            f"HOME={os.environ.get('HOME', '')}: cannot be written, nor a folder for temporary files ({error}); name "
            "one that can be with HOME or TMPDIR"
        ) from error
