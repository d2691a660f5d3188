"""The keys and files that belong to a state: without them existing credentials would be invalid after a restore.

The keys that servers share (:mod:`..keys.shared_keys`) are `keys/…` in a backup, wherever they were stored. A single server's
own files are `data/…`: they are restored into a data directory; servers on etcd do not need them, since they create their
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from remuda.kube.certificates import PkiError

from ..keys.encryption import BadConfiguration
from ..keys.key_agreement import fingerprints
from ..keys.shared_keys import CA_CERTIFICATE, CA_KEY, ENCRYPTION, FILES, SERVICE_ACCOUNT_KEY, KeyMaterial, read_directory
from .format import BackupError, Damaged, File

DATABASE = "state.db"
PKI = "pki"
_KEYS, _DATA = "keys/", "data/"
# Relative to a data directory. Without the kubeconfig: a server writes it at start.
OWN_FILES = ("pki/admin.crt", "pki/admin.key", "pki/serving.crt", "pki/serving.key", "bootstrap-password")


def places(data_dir: Path) -> dict[str, Path]:
    """The paths of the keys of a server without shared keys, by the names of shared keys."""
    pki = data_dir / PKI
    found = {name: pki / name for name in (CA_KEY, CA_CERTIFICATE, SERVICE_ACCOUNT_KEY)}
    return {**found, ENCRYPTION: data_dir / ENCRYPTION}


def of_data_directory(data_dir: Path, pki_dir: Path | None) -> KeyMaterial:
    """The keys of a server whose state is in its data directory. Raises BackupError."""
    try:
        if pki_dir is not None:
            return read_directory(pki_dir)
        found = places(data_dir)
        missing = [path for path in found.values() if not path.exists()]
        if missing:
            raise BackupError(f"{missing[0]} is missing: if the server was started with --pki-dir, say that here, too")
        material = KeyMaterial.of({name: path.read_bytes() for name, path in found.items()})
        material.check(str(data_dir))
        return material
    except (PkiError, BadConfiguration) as error:
        raise BackupError(str(error)) from error


def own_files(data_dir: Path) -> dict[str, bytes]:
    """The existing files of OWN_FILES."""
    found = {}
    for name in OWN_FILES:
        try:
            found[name] = (data_dir / name).read_bytes()
        except FileNotFoundError:
            continue
    return found


def records(material: KeyMaterial, own: Mapping[str, bytes]) -> Iterable[File]:
    yield from (File(_KEYS + name, content) for name, content in material.files().items())
    yield from (File(_DATA + name, content) for name, content in own.items())


class Keyring:
    """The files of a backup: :meth:`add` each, then read the properties. Unknown names are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, bytes] = {}

    def add(self, file: File) -> None:
        self._files[file.name] = file.content

    @property
    def material(self) -> KeyMaterial:
        try:
            found = KeyMaterial.of({name: self._files[_KEYS + name] for name in FILES})
            found.check(str(self._path))
        except (KeyError, PkiError, BadConfiguration) as error:
            raise Damaged(f"{self._path} has no keys that can be used ({error}): take another backup") from None
        return found

    @property
    def own(self) -> dict[str, bytes]:
        """The server's own files by their names in a data directory; only known names, so no path leads outside."""
        return {name: self._files[_DATA + name] for name in OWN_FILES if _DATA + name in self._files}


def are_the_same(one: KeyMaterial, other: KeyMaterial) -> bool:
    """True when all keys are equal; the CA's certificate may differ, since it may have been renewed."""
    return fingerprints(one) == fingerprints(other)
