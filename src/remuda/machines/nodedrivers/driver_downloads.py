"""External drivers: programs that are downloaded, checked, unpacked, and put where rancher-machine finds them.

Only a program with the checksum in the NodeDriver is kept, let alone run. The directory of a driver is named after that checksum,
so that two versions of it never mix.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import ssl
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

from remuda.client.download import FetchError, fetched
from remuda.client.proxies import proxy_for
from remuda.kube.clock import Clock
from remuda.kube.network.outbound import Policy
from remuda.kube.network.outbound_http import Current

from ..errors import DriverError, Reason
from .rancher_machine import PLUGIN

_WITHIN, _REDIRECTS = 300.0, 5
_LARGEST: Final = 256 << 20
_CHECKSUM: Final = re.compile(r"^[0-9a-f]{64}$")
_NAME: Final = re.compile(r"^[a-z0-9]+$")
_ELF, _ZIP, _GZIP = b"\x7fELF", b"PK\x03\x04", b"\x1f\x8b"

# A function that gets the content at a URL; raises FetchError.
Fetch = Callable[[str], Awaitable[bytes]]


def fetcher(clock: Clock, environment: Mapping[str, str], policy: Current = Policy.for_administrators) -> Fetch:
    """A download with the system's trusted CAs and the environment's proxy, from addresses that the policy permits."""

    async def fetch(url: str) -> bytes:
        return await fetched(
            url,
            clock,
            context=ssl.create_default_context(),
            proxy=proxy_for(url, environment),
            within=_WITHIN,
            largest=_LARGEST,
            redirects=_REDIRECTS,
            policy=policy(),
        )

    return fetch


def url_problem(url: str) -> str:
    """The problem with a driver's address; empty if there is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "must be a URL"
    if parts.scheme != "https" or not parts.hostname or port == 0:
        return "must be local:// or an https URL"
    if parts.username or parts.password:
        return "must not have a user or password in it: all users who may read drivers would see it"
    return ""


def checksum_problem(checksum: str) -> str:
    if not checksum:
        return "what is downloaded and run needs a checksum: the SHA-256 of the file, in hexadecimal"
    return "" if _CHECKSUM.match(checksum) else "must be a SHA-256 in 64 hexadecimal digits of lower case"


def name_problem(driver: str) -> str:
    """The names of its kinds and files are made of it."""
    return "" if _NAME.match(driver) and len(driver) <= 40 else "must be at most 40 letters of lower case and digits"


async def downloaded(fetch: Fetch, driver: str, url: str, checksum: str, directory: Path) -> Path:
    """The directory with the driver's program in it, which is fetched if it is not there. Raises DriverError."""
    for problem in (name_problem(driver), url_problem(url), checksum_problem(checksum)):
        if problem:
            raise DriverError(Reason.INVALID, f"the driver {driver} can't be downloaded: {problem}")
    place = directory / f"{driver}-{checksum[:16]}"
    program = place / f"{PLUGIN}{driver}"
    if program.exists():
        return place
    try:
        data = await fetch(url)
    except FetchError as error:
        raise DriverError(Reason.UNAVAILABLE, f"the driver {driver} can't be downloaded: {error}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != checksum:
        raise DriverError(Reason.INVALID, f"what {url} gives has the SHA-256 {found}, and the driver's checksum is {checksum}")
    _install(unpacked(data, driver), program)
    return place


def unpacked(data: bytes, driver: str) -> bytes:
    """The program in a download: that itself, or out of a zip or tar.gz archive. Raises DriverError."""
    try:
        program = _program(data, driver)
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, ValueError) as error:
        raise DriverError(Reason.INVALID, f"the download of the driver {driver} can't be unpacked: {error}") from error
    if not program.startswith(_ELF):
        raise DriverError(Reason.INVALID, f"the download of the driver {driver} has no Linux program in it")
    return program


def _program(data: bytes, driver: str) -> bytes:
    if data.startswith(_ZIP):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [each.filename for each in archive.infolist() if not each.is_dir()]
            with archive.open(_chosen(files, driver)) as stream:
                return _bounded(stream)
    if data.startswith(_GZIP):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as plain:
            inner = _bounded(plain)
        if inner.startswith(_ELF):
            return inner
        with tarfile.open(fileobj=io.BytesIO(inner), mode="r:") as tar:
            members = {each.name: each for each in tar.getmembers() if each.isreg()}
            extracted = tar.extractfile(members[_chosen(list(members), driver)])
            return _bounded(extracted) if extracted is not None else b""
    return data


def _chosen(names: list[str], driver: str) -> str:
    """The driver's program among files; the only one, if there is only one."""
    named = [each for each in names if _base(each).startswith(PLUGIN)]
    exact = [each for each in named if _base(each) == f"{PLUGIN}{driver}"]
    for some in (exact, named, names):
        if len(some) == 1:
            return some[0]
    raise ValueError(f"it has {len(names)} files, and none that is called {PLUGIN}{driver}")


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _bounded(stream: IO[bytes] | gzip.GzipFile) -> bytes:
    data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST >> 20} MiB")
    return data


def _install(program: bytes, path: Path) -> None:
    """Install the whole program, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    handle, name = tempfile.mkstemp(dir=path.parent)
    scratch = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(program)
        # Jobs may run as another user.
        scratch.chmod(0o555)
        scratch.replace(path)
    except BaseException:
        scratch.unlink()
        raise
