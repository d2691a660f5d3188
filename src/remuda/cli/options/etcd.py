"""The options of a server that shares its state with others: which etcd, and which keys. Names are those of kube-apiserver.

What is wrong is told by the name of the option, before anything is touched.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from remuda.apiserver.storage.etcd import EtcdConfig

_Function = TypeVar("_Function", bound=Callable[..., Any])

DEFAULT_PREFIX = "/registry"


class Sharing(NamedTuple):
    """`etcd` None: the state is this server's own. At most one of the other two is given."""

    etcd: EtcdConfig | None
    pki_dir: Path | None
    token: str


def _path(name: str, metavar: str, text: str) -> Callable[[_Function], _Function]:
    """An option that names a file or a directory."""
    envvar = "REMUDA_" + name.lstrip("-").replace("-", "_").upper()
    return click.option(name, type=click.Path(path_type=Path), metavar=metavar, envvar=envvar, help=text)


def _options(etcd: str, pki_dir: str, token_file: str) -> tuple[Callable[..., Any], ...]:
    """All of them; three mean something else for each command."""
    return (
        click.option("--etcd", "urls", multiple=True, metavar="URL[,URL…]", envvar="REMUDA_ETCD", help=etcd),
        _path("--etcd-cafile", "FILE", "The CA of etcd's certificates.  [default: the system's trusted CAs]"),
        _path("--etcd-certfile", "FILE", "The certificate to show to etcd."),
        _path("--etcd-keyfile", "FILE", "Its key."),
        click.option(
            "--etcd-prefix",
            metavar="PATH",
            default=DEFAULT_PREFIX,
            show_default=True,
            envvar="REMUDA_ETCD_PREFIX",
            help="The prefix of the objects in etcd; must end in /registry.",
        ),
        _path("--pki-dir", "DIR", pki_dir),
        _path("--token-file", "FILE", token_file),
        click.option(
            "--token",
            metavar="TOKEN",
            default="",
            envvar="REMUDA_TOKEN",
            help="The token itself. Every user of the machine can see it here: better use --token-file.",
        ),
    )


_SERVING = _options(
    "Keep the state in this etcd, which other servers may share; its members, such as https://10.0.0.1:2379.",
    "The keys that all servers share, in a directory with the same content on every machine; made if it is empty.",
    "Or: keep those keys in etcd, sealed with the token in this file.",
)
_BACKING_UP = _options(
    "Back up what is in this etcd instead of the data directory; its members, as the servers on it were given.",
    "The directory of the servers' shared keys, as given to serve; they go into the backup, too.",
    "Or: their keys are in etcd, sealed with the token in this file.",
)
_RESTORING = _options(
    "Restore into this etcd instead of the data directory; its members, such as https://10.0.0.1:2379.",
    "Put the keys of the backup into this directory, for all servers that will share them; empty, or with these keys.",
    "Or: put them into etcd, sealed with the token in this file.",
)


def etcd_options(function: _Function) -> Callable[..., Any]:
    """Adds them, for a server; the function gets one `sharing: Sharing`."""
    return _added(function, _SERVING)


def etcd_backup_options(function: _Function) -> Callable[..., Any]:
    return _added(function, _BACKING_UP)


def etcd_restore_options(function: _Function) -> Callable[..., Any]:
    return _added(function, _RESTORING)


def _added(function: _Function, options: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:

    @functools.wraps(function)
    def with_options(
        *args: Any,
        urls: tuple[str, ...],
        etcd_cafile: Path | None,
        etcd_certfile: Path | None,
        etcd_keyfile: Path | None,
        etcd_prefix: str,
        pki_dir: Path | None,
        token_file: Path | None,
        token: str,
        **others: Any,
    ) -> Any:
        files = {"--etcd-cafile": etcd_cafile, "--etcd-certfile": etcd_certfile, "--etcd-keyfile": etcd_keyfile}
        etcd = _etcd(urls, files, etcd_prefix)
        sharing = Sharing(etcd, pki_dir.absolute() if pki_dir is not None else None, _token(token, token_file))
        _check_keys(sharing, "--token" if token_file is None else "--token-file")
        return function(*args, sharing=sharing, **others)

    found: Callable[..., Any] = with_options
    for option in reversed(options):
        found = option(found)
    return found


# --- which etcd -------------------------------------------------------------------------------------------------------------


def _etcd(urls: Sequence[str], files: dict[str, Path | None], prefix: str) -> EtcdConfig | None:
    from remuda.apiserver.storage.etcd import EtcdConfig

    endpoints = tuple(dict.fromkeys(_url(part.strip()) for text in urls for part in text.split(",") if part.strip()))
    given = [name for name, path in files.items() if path is not None]
    if not endpoints:
        if urls:
            raise click.BadParameter("no URL is given", param_hint="--etcd")
        if given:
            raise click.BadParameter("is for --etcd, which is not given", param_hint=given[0])
        if prefix != DEFAULT_PREFIX:
            raise click.BadParameter("is for --etcd, which is not given", param_hint="--etcd-prefix")
        return None
    plain = [url for url in endpoints if url.startswith("http:")]
    if plain and given:
        raise click.BadParameter(f"has no effect with {plain[0]}, which is not https", param_hint=given[0])
    if plain and len(plain) < len(endpoints):
        raise click.BadParameter(
            f"{plain[0]} is http and others are https: all members must be one or the other", param_hint="--etcd"
        )
    if ("--etcd-certfile" in given) != ("--etcd-keyfile" in given):
        one, other = (
            ("--etcd-certfile", "--etcd-keyfile") if "--etcd-certfile" in given else ("--etcd-keyfile", "--etcd-certfile")
        )
        raise click.BadParameter(f"needs {other}, too", param_hint=one)
    for name, path in files.items():
        if path is not None:
            _check_readable(name, path)
    ca, certificate, key = files.values()
    return EtcdConfig(endpoints, ca, certificate, key, _prefix(prefix))


def _url(text: str) -> str:
    def wrong(why: str) -> click.BadParameter:
        return click.BadParameter(f"{text!r} {why}; it must be like https://10.0.0.1:2379", param_hint="--etcd")

    if "://" not in text:
        raise wrong("has no scheme")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise wrong(f"is not a URL ({error})") from None
    if parts.scheme not in ("http", "https"):
        raise wrong(f"has the scheme {parts.scheme!r}")
    if not parts.hostname:
        raise wrong("has no host")
    if port is None:
        raise wrong("has no port")
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise wrong("has more than a scheme, a host and a port")
    return text.rstrip("/")


def _prefix(text: str) -> str:
    """The prefix that the store adds to its keys, which begin with /registry themselves."""
    path = text.rstrip("/")
    if (
        not path.startswith("/")
        or not path.endswith(DEFAULT_PREFIX)
        or any(part in ("", ".", "..") for part in path[1:].split("/"))
    ):
        raise click.BadParameter(
            f"{text!r} must be a path that ends in {DEFAULT_PREFIX}, as in /prod/registry", param_hint="--etcd-prefix"
        )
    return path.removesuffix(DEFAULT_PREFIX)


def _check_readable(option: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise click.BadParameter(f"{path} can't be read: {os.strerror(error.errno or 0)}", param_hint=option) from None


# --- which keys -------------------------------------------------------------------------------------------------------------


def _token(token: str, path: Path | None) -> str:
    if path is None:
        hint, found = "--token", token
    elif token:
        raise click.BadParameter("is given, and --token as well: one of them is enough", param_hint="--token-file")
    else:
        hint, found = "--token-file", _read_token(path)
    if not found and path is None:
        return ""
    from remuda.apiserver.keys.token_sealing import check_token
    from remuda.kube.certificates import PkiError

    try:
        check_token(found)
    except PkiError as error:
        raise click.BadParameter(str(error), param_hint=hint) from None
    return found


def _read_token(path: Path) -> str:
    _check_readable("--token-file", path)
    if path.stat().st_mode & 0o077 and path.is_file():
        raise click.BadParameter(f"others may read {path}: run chmod 600 {path}", param_hint="--token-file")
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} can't be read: {error}", param_hint="--token-file") from None


def _check_keys(sharing: Sharing, hint: str) -> None:
    if sharing.token and sharing.pki_dir is not None:
        raise click.BadParameter("is given, and a token as well: the shared keys have one place", param_hint="--pki-dir")
    if sharing.etcd is None and sharing.token:
        raise click.BadParameter("is for --etcd, which is not given", param_hint=hint)
    if sharing.etcd is not None and not sharing.token and sharing.pki_dir is None:
        raise click.BadParameter(
            "needs the keys that all servers on it share: say --pki-dir DIR or --token-file FILE", param_hint="--etcd"
        )
