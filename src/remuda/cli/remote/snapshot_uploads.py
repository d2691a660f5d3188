"""Uploading a snapshot from a file of this machine, piece by piece; one that was cut goes on where it ended.

The file is checked here first, so that one that is no snapshot is not sent. The metadata that a distribution keeps beside its
snapshots, with the cluster's spec of that time, is sent with it where it is found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

from remuda.client.interface import Client
from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key
from remuda.provisioning.etcd import snapshot_content
from remuda.provisioning.etcd.snapshot_content import InvalidSnapshot
from remuda.provisioning.etcd.snapshot_reports import is_snapshot_name

from ..exit_codes import Code, Failure
from ..views.snapshots import size as in_units
from .snapshot_files import Told

Obj = dict[str, Any]

PIECE: Final = 4 << 20
_TRIES: Final = 8
_EVERY, _CHECKED_WITHIN = 1.0, 3600.0
_LARGEST_METADATA: Final = 512 << 10
_TOLD_EVERY: Final = 64 << 20


async def uploaded(client: Client, wanted: Obj, path: Path, told: Told, clock: Clock, *, other_cluster: bool) -> str:
    """The name of its ETCDSnapshot. Raises ApiError, and Failure."""
    if not is_snapshot_name(path.name):
        raise Failure(f"{path.name!r} is not the name of a file that etcd could be restored from: rename it", Code.USAGE)
    try:
        with path.open("rb") as file:
            told(f"{path.name}: checking the file")
            snapshot_content.read(file)
            upload = _Upload(client, wanted, path, file, told, clock)
            await upload.send()
            return await upload.finish(other_cluster)
    except InvalidSnapshot as error:
        raise Failure(f"{path} is not imported: {error}") from None
    except OSError as error:
        raise Failure(f"{path} can't be read: {error.strerror or error}", Code.NOT_FOUND) from None


class _Upload:
    def __init__(self, client: Client, wanted: Obj, path: Path, file: BinaryIO, told: Told, clock: Clock) -> None:
        sha256 = snapshot_content.sha256_of(file)
        key = Key.of(wanted)
        self._at = f"/v1-remuda/snapshots/{key.namespace}/{key.name}/{sha256}"
        self._client = client
        self._path = path
        self._file = file
        self._size = file.seek(0, 2)
        self._told = told
        self._clock = clock

    async def send(self) -> None:
        here, shown, trouble = await self._received(), 0, 0
        if here:
            self._told(f"{self._path.name}: the server has {in_units(here)} of {in_units(self._size)} of it")
        while here < self._size:
            self._file.seek(here)
            query = {"offset": str(here), "size": str(self._size)}
            try:
                found = await self._client.raw("PUT", self._at, query=query, body=self._file.read(PIECE))
                here, trouble = int(found["received"]), 0
            except ApiError as error:
                here, trouble = await self._after(error, here, trouble + 1), trouble + 1
            if here - shown >= _TOLD_EVERY or here == self._size:
                shown = here
                self._told(f"{self._path.name}: {in_units(here)} of {in_units(self._size)} uploaded")

    async def _after(self, error: ApiError, here: int, trouble: int) -> int:
        """Where to go on after a piece that was not taken. Raises Failure."""
        if error.code not in (409, 429, 503) or trouble >= _TRIES:
            raise self._cut(here, error) from None
        if error.code != 409:
            await self._clock.sleep(min(30.0, 2.0**trouble))
        now = await self._received()
        if error.code == 409 and now == here:
            raise self._cut(here, error) from None
        return now

    async def _received(self) -> int:
        return int((await self._client.raw("GET", self._at))["received"])

    def _cut(self, here: int, error: ApiError) -> Failure:
        text = f"{self._path} is not imported: {error.message} (the server has {here} of {self._size} bytes; repeat it to go on)"
        return Failure(text, Code.NOT_ALLOWED if error.code == 403 else Code.CONFLICT if error.code == 409 else Code.FAILURE)

    async def finish(self, other_cluster: bool) -> str:
        query = {"file": self._path.name, "size": str(self._size), **({"otherCluster": "true"} if other_cluster else {})}
        metadata = _metadata_beside(self._path)
        until = self._clock.monotonic() + _CHECKED_WITHIN
        self._told(f"{self._path.name}: the server checks it")
        while True:
            try:
                found = await self._client.raw("POST", self._at, query=query, body=metadata)
            except ApiError as error:
                if error.code not in (409, 422):
                    raise
                code = Code.CONFLICT if error.code == 409 else Code.FAILURE
                raise Failure(f"{self._path} is not imported: {error.message}", code) from None
            if name := found.get("snapshot"):
                return str(name)
            if self._clock.monotonic() >= until:
                raise Failure(f"the server did not check {self._path} within an hour: repeat it", Code.TIMEOUT)
            await self._clock.sleep(_EVERY)


def _metadata_beside(path: Path) -> Obj:
    """The metadata of a snapshot in its directory, or as hosts have it, beside its directory; else none."""
    for directory in (path.parent, path.absolute().parent.parent):
        place = directory / ".metadata" / path.name
        try:
            if place.is_file() and place.stat().st_size <= _LARGEST_METADATA:
                found = jsonio.loads(place.read_bytes())
                return found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            continue
    return {}
