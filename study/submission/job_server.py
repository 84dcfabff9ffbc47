"""Ray's job server, with every refusal as one sentence; the only use of `ray.job_submission`."""

from __future__ import annotations

import json
import logging
import re
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

from study import private_names
from trainables.errors import told

CONNECT_S, ANSWER_S, UPLOAD_S = 10.0, 30.0, 300.0
"""Seconds that a connection, an answer and the answer to an upload may take."""
POLL_S = 1.0
NOT_YET, NOT_YET_S = "try again later", 60.0
"""Words of a server that will have an answer in a while, and the seconds for which it is asked again."""
LOST_FOR_S = 60.0
"""How long `follow` waits for a job server that does not answer."""

for chatty in private_names.CHATTY:
    logging.getLogger(chatty).setLevel(logging.ERROR)


WHERE = "give the token as RAY_AUTH_TOKEN, as the file RAY_AUTH_TOKEN_PATH or in ~/.ray/auth_token"


class JobServerError(ValueError):
    """The job server cannot or will not do what was asked."""


class Unavailable(JobServerError):
    """The job server does not answer now; it may later."""


class Unknown(JobServerError):
    """The job server has no such job."""


class Lost(JobServerError):
    """The job server that ran the job is gone."""


class Jobs(private_names.OwnRequests, JobSubmissionClient):
    """The jobs of the cluster whose dashboard is at `address`, `http(s)://HOST:8265`.

    `verify` is False or the file or folder of the certificates to trust. A token is sent where Ray finds one:
    RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token, unless RAY_AUTH_MODE says otherwise.
    `say` is told why something takes long.
    """

    def __init__(
        self,
        address: str,
        headers: Mapping[str, str],
        verify: bool | str,
        say: Callable[[str], Any] = lambda text: None,
    ) -> None:
        self.shown = address.rstrip("/")
        self.say = say
        try:
            private_names.use_token()
            super().__init__(address, headers=dict(headers), verify=verify)
        except AuthenticationError as error:
            # Raised where the token that RAY_AUTH_MODE or RAY_AUTH_TOKEN_PATH promises is not there.
            raise JobServerError(f"{str(error).partition('. ')[0]}; {WHERE}") from error
        except (RuntimeError, requests.HTTPError, json.JSONDecodeError, KeyError, TypeError) as error:
            raise JobServerError(
                f"--address {self.shown}: the server there is not Ray's job server ({told(error, 200)})"
            ) from error

    def of(self, prefix: str) -> list[JobDetails]:
        """Jobs submitted as `prefix`-1, -2, ..., in this order."""
        numbered = {
            int(number): job
            for job in self.list_jobs()
            for begin, _, number in [(job.submission_id or "").rpartition("-")]
            if begin == prefix and number.isdigit()
        }
        return [numbered[number] for number in sorted(numbered)]

    def end(self, submission_id: str) -> JobDetails:
        """The job after its end, for which this waits."""
        while not (job := self.get_job_info(submission_id)).status.is_terminal():
            time.sleep(POLL_S)
        return job

    def follow(self, submission_id: str, write: Callable[[str], Any]) -> JobDetails:
        """Write what the job prints until it ends; the job after its end.

        Whole logs are fetched and their new part is written: plain requests pass proxies that cut a connection
        on which nothing moves. They are short, because what a study's libraries print goes to its storage.
        Raises `Lost` where the server is gone for a minute or another one has come in its place.
        """
        shown, heard, seen = 0, time.monotonic(), False
        while True:
            try:
                job = self.get_job_info(submission_id)
                text = self.get_job_logs(submission_id)
            except (Unavailable, Unknown) as error:
                gone = isinstance(error, Unknown) or time.monotonic() - heard > LOST_FOR_S
                if gone and seen:
                    raise Lost(f"{submission_id} was lost with its cluster: {error}") from error
                if gone:
                    raise
            else:
                heard, seen = time.monotonic(), True
                write(text[shown:])
                shown = len(text)
                if job.status.is_terminal():
                    return job
            time.sleep(POLL_S)

    def request(self, method: str, send: Callable[..., requests.Response]) -> requests.Response:
        """A server that asks for patience, as one does whose cluster has just been started, is asked again."""
        answer, began = self._answer(method, send), time.monotonic()
        while answer.status_code >= 500 and NOT_YET in answer.text and time.monotonic() - began < NOT_YET_S:
            if time.monotonic() - began < POLL_S:
                self.say(f"the cluster at {self.shown} is not ready yet; it is asked again for {NOT_YET_S:g} s")
            time.sleep(POLL_S)
            answer = self._answer(method, send)
        return answer

    def _answer(self, method: str, send: Callable[..., requests.Response]) -> requests.Response:
        """Ray's own request waits for ever for a server that does not answer."""
        patience = (CONNECT_S, UPLOAD_S if method == "PUT" else ANSWER_S)
        try:
            return send(timeout=patience)
        except AuthenticationError as error:
            if "required" in str(error).partition(":")[0]:
                raise JobServerError(f"--address {self.shown}: the cluster wants a token; {WHERE}") from error
            raise JobServerError(
                f"--address {self.shown}: the cluster was started with another token than ours; {WHERE}"
            ) from error
        except requests.exceptions.SSLError as error:
            raise JobServerError(
                f"--address {self.shown}: its certificate is not trusted ({_reason(error)}); --verify FILE names the "
                "certificates to trust"
            ) from error
        except (requests.ConnectionError, requests.Timeout) as error:
            raise Unavailable(f"--address {self.shown}: no server answers there ({_reason(error)})") from error
        except requests.RequestException as error:
            raise JobServerError(f"--address {self.shown}: {_reason(error)}") from error

    def refuse(self, answer: requests.Response) -> None:
        text = answer.text.strip()
        if answer.status_code == 404 and "does not exist" in text:
            raise Unknown(f"{text.splitlines()[0]} on the cluster at {self.shown}")
        last = text.splitlines()[-1] if text else "without a word"
        kind = Unavailable if answer.status_code >= 500 else JobServerError
        raise kind(f"the cluster at {self.shown} answers {answer.status_code}: {last[:500]}")


def verified(text: str | None) -> bool | str:
    """`--verify` as `requests` takes it; raises ValueError for certificates that are not there."""
    if text is None or text == "no":
        return text is None
    if not Path(text).exists():
        raise ValueError(f"--verify {text}: no such file or folder; name certificates to trust, or 'no'")
    try:
        folder = Path(text).is_dir()
        ssl.create_default_context(cafile=None if folder else text, capath=text if folder else None)
    except OSError as error:
        raise ValueError(f"--verify {text}: no certificates there ({told(error)}); name others, or 'no'") from error
    return text


def _reason(error: Exception) -> str:
    """The innermost reason of what `requests` wraps several times."""
    found: BaseException = error
    while found.args and isinstance(found.args[0], BaseException):
        found = found.args[0]
    words = str(getattr(found, "reason", None) or found).rpartition(": ")[2]
    return re.sub(r"^\[Errno -?\d+\] ", "", words)
