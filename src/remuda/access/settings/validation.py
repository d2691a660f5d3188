"""Checks of settings' values: each gives a sentence that says what is wrong, or "" for a valid value.

The sentence continues after the setting's name ("server-url must begin with https://"); :mod:`.settings` joins the two.
A value is never repeated in it: some are long, and some people paste secrets into the wrong field.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from remuda.kube.certificates import parse_certificate
from remuda.kube.duration import parse_go_duration
from remuda.kube.encoding import jsonio
from remuda.kube.network import outbound

Check = Callable[[str], str]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"v?\d{1,9}\.\d{1,9}\.\d{1,9}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?)(:\d{1,5})?")
_COMPONENT = r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\r?\n.*?-----END \1-----", re.DOTALL)
_DISTRIBUTIONS = ("k3s", "rke2", "remuda")
_LARGEST_MINUTES = 10 * 366 * 24 * 60


def anything(_: str) -> str:
    return ""


def one_of(*values: str) -> Check:
    said = f"must be one of {', '.join(value or 'empty' for value in values)}"
    return lambda text: "" if text in values else said


def whole_number(low: int, high: int = _LARGEST_MINUTES) -> Check:
    said = f"must be a whole number from {low} to {high}"

    def check(text: str) -> str:
        if not text.isascii() or not text.isdigit() or len(text) > 12:
            return said
        return "" if low <= int(text) <= high else said

    return check


boolean = one_of("true", "false")


def duration(text: str) -> str:
    """A duration as Go writes it, not negative."""
    found = parse_go_duration(text)
    if found is None or found < 0:
        return "must be a duration such as 30s, 30m or 1h30m"
    return ""


def seconds(text: str) -> float:
    """The seconds of a duration that :func:`duration` has accepted."""
    found = parse_go_duration(text)
    if found is None:
        raise ValueError("not a duration")
    return found / 1e9


def https_origin(text: str) -> str:
    """An address given to other programs: scheme, host and port, and nothing that they could read differently."""
    problem = _url_problem(text, ("https",))
    if problem:
        return problem
    if urlsplit(text).path:
        return "must be https:// and a host, without a path or a / at its end"
    return ""


def web_address(text: str) -> str:
    return _url_problem(text, ("https", "http"))


def _url_problem(text: str, schemes: tuple[str, ...]) -> str:
    if len(text) > 2048 or not text.isascii() or not text.isprintable() or set(text) & set(" \\\"'<>`{}|^$;"):
        return "must be a plain URL without blanks, quotes or other signs that a shell or a browser reads"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "must be a URL with a host and, if any, a port from 1 to 65535"
    if parts.scheme not in schemes or not text.startswith(f"{parts.scheme}://"):
        return f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user name or password"
    if "?" in text or "#" in text:
        return "must not hold a query or a fragment"
    if port == 0 or not parts.hostname or not _HOST.fullmatch(parts.netloc):
        return "must be a URL with a host and, if any, a port from 1 to 65535"
    return ""


def certificates(text: str) -> str:
    """One or more PEM certificates and nothing else: every client can read this text."""
    if "PRIVATE KEY" in text:
        return "must contain certificates only: it contains a private key, which others may have read"
    blocks = list(_BLOCK.finditer(text))
    if not blocks or len(text) > 1 << 20:
        return "must be one or more certificates in PEM"
    for number, block in enumerate(blocks, 1):
        if block[1] != "CERTIFICATE" or parse_certificate(block[0].encode(errors="replace")) is None:
            return f"must be one or more certificates in PEM, and number {number} is none"
    return ""


def image(text: str) -> str:
    """An image reference: registry and port, path, tag, digest."""
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return "must be an image reference whose digest is sha256: and 64 hexadecimal digits"
    path, colon, tag = rest.rpartition(":")
    if colon and "/" not in tag:
        if not _TAG.fullmatch(tag):
            return "must be an image reference, and its tag is not one"
        rest = path
    return _repository_problem(rest)


def image_prefix(text: str) -> str:
    """The beginning of an image's name."""
    return _repository_problem(f"{text}x") and "must be the beginning of an image's name"


def registry(text: str) -> str:
    host, _, path = text.partition("/")
    if not _HOST.fullmatch(host) or (path and not _PATH.fullmatch(path)) or text.endswith("/"):
        return "must be a registry's host, with a port and a path if it has them, and without https://"
    return ""


def _repository_problem(text: str) -> str:
    host, slash, path = text.partition("/")
    named = slash and ("." in host or ":" in host or host == "localhost")
    if len(text) > 255 or (named and not _HOST.fullmatch(host)) or not _PATH.fullmatch(path if named else text):
        return "must be an image reference such as registry.example/team/name:tag"
    return ""


def version(text: str) -> str:
    return "" if _VERSION.fullmatch(text) and len(text) <= 128 else "must be a version such as v1.2.3"


def label(text: str) -> str:
    return "" if _LABEL.fullmatch(text) else "must be a name of lower case letters, digits and -, of at most 63 characters"


def names(text: str) -> str:
    if all(_SUBDOMAIN.fullmatch(name) and len(name) <= 253 for name in text.split(",")):
        return ""
    return "must be names of Secrets with commas between them"


def variables(text: str) -> str:
    if all(_VARIABLE.fullmatch(name) for name in text.split(",")):
        return ""
    return "must be names of environment variables with commas between them"


def outbound_policy(text: str) -> str:
    """Networks to which connections are allowed, and denied."""
    return outbound.problem_of(text)


def json_object(text: str) -> str:
    data = text.encode(errors="replace")
    try:
        found = None if jsonio.depth_exceeds(data) else jsonio.loads(data)
    except jsonio.JsonError:
        found = None
    return "" if isinstance(found, dict) else "must be a JSON object"


def metadata_source(text: str) -> str:
    """The source of release data and its refresh interval; or the data itself, by distribution."""
    problem = json_object(text)
    if problem:
        return problem
    found = jsonio.loads(text)
    every, url = found.get("refresh-interval-minutes"), found.get("url")
    if url is None and any(isinstance(found.get(name), dict) for name in _DISTRIBUTIONS):
        return ""
    # No address: the release data in the program.
    if not isinstance(url, str) or (url and web_address(url)):
        return "must be a JSON object whose url is an http or https address, or that has release data in it"
    # 0 turns the refresh off.
    if not isinstance(every, str | int) or isinstance(every, bool) or whole_number(0)(str(every)):
        return "must be a JSON object whose refresh-interval-minutes is a whole number"
    return ""
