"""For every test: no secret is in what the servers of the session write, in this process or in those that it started.

Secrets become known where they are made or shown: chance that becomes text (:class:`~remuda.kube.clock.Entropy`), tokens that
are signed, Secrets that are created in this process, what tests show over HTTP, and, at the end, all Secrets in the databases of
servers that were started, opened with their own keys. Logs become known in the same way: files that processes write to, all logs
below data directories, and what this process logs. At the end of the session they are read once. What is found fails the session,
and is told without being repeated.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import json
import logging
import os
import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from remuda.apiserver.auth.token_keys import TokenKeys
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.encryption import EncryptionError, Envelope, parse_keys
from remuda.kube.clock import Entropy

ENVIRONMENT = "REMUDA_TEST_LEAKS"
# How much of a secret has to be in a line: nobody guesses the rest.
HEAD = 16
_WORDS = re.compile(rb"[!-~]{16,}")
_FIELDS = re.compile(r"token|passw|secret|credential|private|(^|[-_.])key$|Key$", re.IGNORECASE)
_PEM = re.compile(r"-----BEGIN (?P<kind>[A-Z ]*)PRIVATE KEY-----(?P<body>[A-Za-z0-9+/=\s]+)-----END")
# The beginning that all keys of this curve have in common.
_P256 = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"
# Printed once, on purpose (docs/access.md).
_ON_PURPOSE = re.compile(rb"^The first user is \S+, its password ")
_LOGS = ("*.log", "audit*.log*", "journal*")


class Lookout:
    """What one process of the session knows."""

    def __init__(self) -> None:
        # By the first bytes, where it comes from; and those that hold spaces, which are few.
        self.heads: dict[bytes, str] = {}
        self.phrases: dict[bytes, str] = {}
        self.logs: dict[Path, str] = {}
        self.directories: dict[Path, str] = {}

    # --- secrets --------------------------------------------------------------------------------------------------------

    def learn(self, secret: str, origin: str) -> None:
        """One secret. What is too short, or one letter again and again, could be anything."""
        for found in _PEM.finditer(secret):
            body = "".join(found["body"].split())
            start = len(_P256) if body.startswith(_P256) else len(body) // 2
            self._add(body[start : start + 43], origin)
        if "-----BEGIN" in secret or "\n" in secret.strip():
            return
        if secret.startswith("eyJ") and secret.count(".") == 2:
            secret = secret.rpartition(".")[2]
        self._add(secret.strip(), origin)

    def _add(self, secret: str, origin: str) -> None:
        data = secret.encode(errors="replace")
        if len(data) < HEAD or len(set(data[:HEAD])) < 6:
            return
        if b" " in data:
            self.phrases.setdefault(data, origin)
        else:
            self.heads.setdefault(data[:HEAD], origin)

    def learn_secret(self, obj: Any, origin: str) -> None:
        """What is in a Secret, by the names of its fields; `hush-` marks what a test means to be found."""
        if not isinstance(obj, dict):
            return
        plain = {key: _decoded(value) for key, value in (obj.get("data") or {}).items() if isinstance(value, str)}
        for key, value in {**plain, **(obj.get("stringData") or {})}.items():
            if isinstance(value, str) and (_FIELDS.search(key) or value.startswith("hush-") or "PRIVATE KEY" in value):
                self.learn(value, f"{origin}, field {key}")

    def learn_database(self, directory: Path) -> None:
        """All Secrets that a server ever kept in its directory, and the keys beside them."""
        for path in directory.glob("pki/*.key"):
            with contextlib.suppress(OSError):
                self.learn(path.read_text(errors="replace"), f"{path.name} of a server")
        database, keys = directory / "state.db", directory / "encryption.yaml"
        if not database.exists() or not keys.exists():
            return
        with contextlib.suppress(sqlite3.Error, EncryptionError, OSError, ValueError):
            envelope = Envelope(parse_keys(keys.read_bytes()), Entropy(0))
            connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)
            try:
                rows = connection.execute("SELECT key, value FROM log WHERE key LIKE '/registry/secrets/%' AND value IS NOT NULL")
                for key, value in rows:
                    with contextlib.suppress(EncryptionError, ValueError):
                        self.learn_secret(json.loads(envelope.open(key, value)[0]), f"Secret {key.rpartition('secrets/')[2]}")
            finally:
                connection.close()

    # --- logs -----------------------------------------------------------------------------------------------------------

    def leaks(self) -> list[str]:
        """What was found in all logs, told without the secret."""
        # Threads of tests that are over may still learn something: what is looked through is as it was.
        for directory in list(self.directories):
            with contextlib.suppress(OSError):
                self.learn_database(directory)
        return [told for path, test in self._files() for told in self.leaks_in(path, test)]

    def _files(self) -> Iterator[tuple[Path, str]]:
        known = dict(self.logs)
        for directory, test in list(self.directories.items()):
            for pattern in _LOGS:
                # Something may still be removed in there.
                with contextlib.suppress(OSError):
                    for path in directory.rglob(pattern):
                        known.setdefault(path, test)
        yield from known.items()

    def leaks_in(self, path: Path, test: str) -> Iterator[str]:
        try:
            text = path.read_bytes() if path.is_file() else b""
        except OSError:
            return
        # Of every word once: a log says the same again and again.
        words = {word for word in set(_WORDS.findall(text)) if self._head_in(word)}
        if not words and not any(phrase in text for phrase in list(self.phrases)):
            return
        for number, line in enumerate(text.splitlines(), 1):
            if _ON_PURPOSE.match(line):
                continue
            for word in _WORDS.findall(line):
                if word in words:
                    head = self._head_in(word)
                    shown = line[: line.find(head)] + b"[HERE]"
                    yield f"{test}: {path}:{number}: a secret ({self.heads[head]}): {shown[-200:].decode(errors='replace')}"
            for phrase, origin in list(self.phrases.items()):
                if phrase in line:
                    shown = line.replace(phrase, b"[HERE]")
                    yield f"{test}: {path}:{number}: a secret ({origin}): {shown[-200:].decode(errors='replace')}"

    def _head_in(self, word: bytes) -> bytes:
        heads = self.heads
        return next((word[at : at + HEAD] for at in range(len(word) - HEAD + 1) if word[at : at + HEAD] in heads), b"")


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, ValueError):
        return ""


def _current_test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "a fixture").partition(" (")[0]


# --- in this process -----------------------------------------------------------------------------------------------------


class _Written(logging.Handler):
    """What servers in this process log, as they would write it."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(logging.INFO)
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            extra = f" exception={record.exc_info[1]!r}" if record.exc_info else ""
            self._file.write(f"{_current_test()} {record.name}: {record.getMessage()}{extra}\n".replace("\n", " ").strip() + "\n")


lookout = Lookout()
_log: list[Path] = []
# What all processes of the session tell is here, in the one that began it.
_report: list[Path] = []


def begin(*, worker: bool) -> None:
    """Once in each process that runs tests. `worker`: another process has begun already, and tells in the end."""
    if not worker and ENVIRONMENT not in os.environ:
        handle, name = tempfile.mkstemp(prefix="remuda-leaks-")
        os.close(handle)
        os.environ[ENVIRONMENT] = name
        _report.append(Path(name))
    handle, name = tempfile.mkstemp(prefix="remuda-logged-")
    _log.append(Path(name))
    logger = logging.getLogger("remuda")
    logger.addHandler(_Written(os.fdopen(handle, "w", buffering=1, errors="replace")))
    # As a server does: what it says at this level is what it would have written.
    logger.setLevel(logging.INFO)
    _watch()


def finish() -> None:
    """At the end of a process' session: read everything, and tell."""
    for path in _log:
        lookout.logs[path] = "in this process"
    report = os.environ.get(ENVIRONMENT)
    found = list(dict.fromkeys(lookout.leaks()))[:100]
    for path in _log:
        path.unlink(missing_ok=True)
    if found and report:
        with Path(report).open("a") as file:
            file.writelines(f"{line}\n" for line in found)


def told() -> list[str]:
    """What all processes have told, to the one that began."""
    return [line for report in _report if report.exists() for line in report.read_text().splitlines()]


def forget() -> None:
    while _report:
        _report.pop().unlink(missing_ok=True)
        os.environ.pop(ENVIRONMENT, None)


def _watch() -> None:
    """Be told of what is made, shown and started."""

    def text(made: str, *_: Any, **__: Any) -> None:
        if len(made) >= 20:
            lookout.learn(made, f"made in {_current_test()}")

    def signed(made: str, *_: Any, **__: Any) -> None:
        lookout.learn(made, f"a token of {_current_test()}")

    _after(Entropy, "token_text", text)
    _after(TokenKeys, "sign", signed)
    _before(InProcessClient, "create", _created)
    _before(http.client.HTTPConnection, "request", _requested)
    _before(subprocess.Popen, "__init__", _started)


def _after(owner: type, name: str, see: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        made = original(self, *arguments, **named)
        see(made)
        return made

    setattr(owner, name, call)


def _before(owner: type, name: str, see: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        # To look must never be what fails.
        with contextlib.suppress(Exception):
            see(*arguments, **named)
        return original(self, *arguments, **named)

    setattr(owner, name, call)


def _is_fuzz() -> bool:
    """Whether what is sent is anything at all, and so may well be what a log says anyway."""
    return "tests/fuzz/" in _current_test()


def _created(resource: Any, obj: Any, *_: Any, **__: Any) -> None:
    if resource.resource == "secrets" and not _is_fuzz():
        lookout.learn_secret(obj, f"a Secret of {_current_test()}")


def _requested(method: str, url: str, body: Any = None, headers: Any = None, **_: Any) -> None:
    if _is_fuzz():
        return
    scheme, _space, shown = ((headers or {}).get("Authorization") or "").partition(" ")
    if shown:
        lookout.learn(_decoded(shown).partition(":")[2] if scheme == "Basic" else shown.rpartition(":")[2], "shown in a request")
    if isinstance(body, bytes) and (b"assword" in body or b'"Secret"' in body):
        said = json.loads(body)
        if said.get("kind") == "Secret":
            lookout.learn_secret(said, f"a Secret of {_current_test()}")
        for key, value in said.items():
            if isinstance(value, str) and "passw" in key.lower():
                lookout.learn(value, f"a password of {_current_test()}")


def _started(args: Any, *_: Any, **named: Any) -> None:
    words = [os.fspath(word) for word in args] if isinstance(args, list | tuple) else []
    if not any("remuda" in str(word) for word in words):
        return
    for stream in (named.get("stdout"), named.get("stderr")):
        number = stream if isinstance(stream, int) else stream.fileno() if stream is not None else -1
        if number >= 0:
            path = Path(f"/proc/self/fd/{number}").resolve()
            if path.is_file():
                lookout.logs.setdefault(path, _current_test())
    for at, word in enumerate(words[:-1]):
        if word == "--data-dir":
            lookout.directories.setdefault(Path(str(words[at + 1])), _current_test())
