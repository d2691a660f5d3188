"""`curl` for hosts on a machine that has none: the parts of it that the agents' installers use. Standard library only.

A bare Debian on which a user tries Remuda has Python, and no curl. Exit codes are curl's, since scripts tell by them whether a
server is unreachable or not trusted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import socket
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

USAGE, NO_NAME, NO_CONNECTION, REFUSED, NO_FILE, TOO_LONG, NO_TLS, NOT_TRUSTED, NO_CA = 2, 6, 7, 22, 23, 28, 35, 60, 77
# curl's own timeout for connections.
_SECONDS = 300.0
_PIECE = 1 << 16


class _Answer(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Failed(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="curl", add_help=False)
    for flags in (("-f", "--fail"), ("-s", "--silent"), ("-S", "--show-error"), ("-L", "--location"), ("-k", "--insecure")):
        found.add_argument(*flags, action="store_true")
    found.add_argument("-o", "--output", type=Path)
    found.add_argument("-K", "--config")
    found.add_argument("-w", "--write-out", default="")
    found.add_argument("-H", "--header", action="append", default=[])
    found.add_argument("-X", "--request", default="GET")
    found.add_argument("--cacert")
    found.add_argument("--noproxy")
    found.add_argument("--connect-timeout", type=float, default=_SECONDS)
    found.add_argument("--max-time", type=float, default=0.0)
    found.add_argument("--retry", type=int, default=0)
    found.add_argument("--retry-delay", type=float, default=1.0)
    found.add_argument("url", nargs="?", default="")
    return found


def configured(lines: Iterator[str]) -> list[str]:
    """The arguments in a configuration file of curl: `name = "value"` on each line."""
    said = []
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() and not name.lstrip().startswith("#"):
            said += [f"--{name.strip()}", *shlex.split(value)]
    return said


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(given)
    if options.config:
        with sys.stdin if options.config == "-" else Path(options.config).open() as lines:
            options = parser().parse_args([*configured(iter(lines)), *given])
    if not options.url:
        return _say(options, _Failed(USAGE, "no URL specified"))
    for left in range(options.retry, -1, -1):
        try:
            _fetch(options)
            return 0
        except _Failed as failed:
            if not left or failed.code in (NOT_TRUSTED, NO_CA, NO_FILE):
                return _say(options, failed)
        # This is a program of its own, and no simulation runs it.
        time.sleep(options.retry_delay)
    return 0


def _say(options: argparse.Namespace, failed: _Failed) -> int:
    if options.show_error or not options.silent:
        print(f"curl: ({failed.code}) {failed}", file=sys.stderr)  # noqa: T201
    return failed.code


def _fetch(options: argparse.Namespace) -> None:
    request = urllib.request.Request(options.url, method=options.request)
    request.add_header("User-Agent", "curl/8 (remuda)")
    for header in options.header:
        name, _, value = header.partition(":")
        request.add_header(name.strip(), value.strip())
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=_context(options))]
    seconds = options.max_time or options.connect_timeout
    if options.noproxy == "*":
        handlers.append(urllib.request.ProxyHandler({}))
    if not options.location:
        handlers.append(_Staying())
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
            _deliver(options, answer.status, answer)
    except urllib.error.HTTPError as error:
        if options.fail:
            raise _Failed(REFUSED, f"The requested URL returned error: {error.code}") from None
        _deliver(options, error.code, error)
    except urllib.error.URLError as error:
        raise _failure(error.reason, options.url) from None
    except (OSError, ValueError) as error:
        raise _failure(error, options.url) from None


class _Staying(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an answer, without following it."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _context(options: argparse.Namespace) -> ssl.SSLContext:
    bundle = options.cacert or os.environ.get("CURL_CA_BUNDLE") or None
    try:
        found = ssl.create_default_context(cafile=bundle)
    except (OSError, ssl.SSLError) as error:
        raise _Failed(NO_CA, f"error setting certificate file {bundle}: {error}") from None
    if options.insecure:
        found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found


def _deliver(options: argparse.Namespace, status: int, answer: _Answer) -> None:
    with _output(options.output) as target:
        while piece := answer.read(_PIECE):
            target.write(piece)
    if options.write_out:
        sys.stdout.write(options.write_out.replace("%{http_code}", f"{status:03}").replace("\\n", "\n"))
    sys.stdout.flush()


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        with path.open("wb") as target:
            yield target
    except OSError as error:
        if error.filename != str(path):
            raise
        raise _Failed(NO_FILE, f"Failure writing output to destination: {error.strerror}") from None


def _failure(reason: object, url: str) -> _Failed:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return _Failed(NOT_TRUSTED, f"SSL certificate problem: {reason.verify_message}")
    if isinstance(reason, ssl.SSLError):
        return _Failed(NO_TLS, f"TLS connect error: {reason.reason}")
    if isinstance(reason, socket.gaierror):
        return _Failed(NO_NAME, f"Could not resolve host: {urllib.parse.urlsplit(url).hostname}")
    if isinstance(reason, TimeoutError):
        return _Failed(TOO_LONG, "Operation timed out")
    return _Failed(NO_CONNECTION, f"Failed to connect: {reason}")


if __name__ == "__main__":
    sys.exit(main())
