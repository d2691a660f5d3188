"""Allocation of an address in 127.0.0.0/8 to each host, kept as long as the host exists, unique among all of a user's hosts.

Hosts may be in different data directories, so allocations are recorded in one place for the whole machine: a file per address
that names the host's directory. A record whose host is gone, or has another address, does not count; the records may have been
deleted, and hosts write theirs again when they start. Other users' hosts get another network, by their user id.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import HostError, host_directory
from .host_directory import HostDirectory

# 127.0.x.y is in common use, 127.53.x.y and below by some resolvers.
_FIRST_NETWORK, _NETWORKS = 64, 128
_SHARED = Path("/var/tmp")


def claim(place: HostDirectory, wanted: str = "") -> str:
    """An address for a host: the wanted one, which must be free, or the first free one. Raises HostError."""
    notes = _notes()
    with _locked(notes):
        listening = listeners()
        for address in (wanted,) if wanted else _candidates():
            problem = _problem(notes, place, address, listening)
            if not problem:
                (notes / address).write_text(str(place.directory))
                return address
        raise HostError(problem if wanted else "no loopback address is free for another host")


def check_loopback(address: str) -> None:
    """Raise HostError for an address that no host may have: it is outside the loopback network, or not an address."""
    try:
        fine = ipaddress.IPv4Address(address).is_loopback
    except ValueError:
        fine = False
    if not fine:
        raise HostError(f"{address!r} is no address for a host: say one of 127.0.0.0/8, such as 127.70.0.1")


def release(place: HostDirectory, address: str) -> None:
    """Free the address, if it was this host's."""
    notes = _notes()
    with _locked(notes):
        if _noted(notes / address) == str(place.directory):
            (notes / address).unlink(missing_ok=True)


def held_below(directory: Path) -> list[str]:
    """The addresses recorded for hosts in a directory, whether the hosts exist or not."""
    notes = _notes()
    with _locked(notes):
        found = [note.name for note in notes.iterdir() if Path(_noted(note)).parent == directory.absolute()]
    return sorted(found)


def holder(address: str) -> Path | None:
    """The directory of the host that has the address now; None if it is free."""
    notes = _notes()
    with _locked(notes):
        noted = _noted(notes / address)
    return Path(noted) if noted and _is_at(HostDirectory(Path(noted)), address) else None


def listeners() -> dict[str, int]:
    """The addresses with a listening socket, each with one of the ports."""
    found: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == "0A":
                raw, _, port = local.partition(":")
                # The kernel writes the four bytes as one number of its own byte order.
                found[str(ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(raw), "little")))] = int(port, 16)
    return found


def _problem(notes: Path, place: HostDirectory, address: str, listening: Mapping[str, int]) -> str:
    holder = _noted(notes / address)
    if holder and holder != str(place.directory) and _is_at(HostDirectory(Path(holder)), address):
        return f"{address} is the address of the host in {holder}"
    if address in listening:
        return f"another program listens on {address}:{listening[address]}, which must be the host's own"
    return ""


def _noted(note: Path) -> str:
    try:
        return note.read_text()
    except FileNotFoundError:
        return ""


def _is_at(place: HostDirectory, address: str) -> bool:
    try:
        return host_directory.read(place.record).address == address
    except (OSError, HostError):
        # A host that is being made has no record yet; the remains of a killed one are deleted with its directory.
        return place.directory.is_dir()


def _candidates() -> Iterator[str]:
    network = _FIRST_NETWORK + os.getuid() % _NETWORKS
    for third in range(256):
        for fourth in range(1, 255):
            yield f"127.{network}.{third}.{fourth}"


def _notes() -> Path:
    # Not from the environment: two shells of one user must look into the same place.
    path = _SHARED / f"remuda-addresses-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    # Every user may write to the parent directory, so another user may have created this one.
    if found.st_uid != os.getuid() or not path.is_dir() or path.is_symlink():
        raise HostError(f"{path} is not ours: it must be a directory of the user who makes hosts")
    return path


@contextlib.contextmanager
def _locked(notes: Path) -> Iterator[None]:
    with (notes / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
