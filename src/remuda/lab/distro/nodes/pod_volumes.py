"""The volumes of a pod that runs as a process: files below its own directory, from the current content of their sources.

Secrets, ConfigMaps, fields of the pod and tokens of its account (alone or projected together), and empty directories. All
others need a node that is not simulated.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, dig, labels_of, name_of, namespace_of, uid_of

Obj = dict[str, Any]

PODS: Final = GroupVersionResource("", "v1", "pods")
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
ACCOUNTS: Final = GroupVersionResource("", "v1", "serviceaccounts")
_TOKEN_SECONDS: Final = 3600
# A kubelet requests a new token when a fifth of its lifetime is left.
_TOKEN_SHARE: Final = 0.8


class VolumeError(Exception):
    """A volume or variable of a pod is not available now; the message says which."""


@dataclass(frozen=True, slots=True)
class File:
    path: str
    content: bytes
    mode: int


def pod_field(pod: Obj, path: str, node: Obj) -> str:
    """A field of a pod as `fieldRef` names it; `node` has values that are not in the pod's status yet."""
    metadata = {"metadata.name": name_of, "metadata.namespace": namespace_of, "metadata.uid": uid_of}
    if path in metadata:
        return metadata[path](pod)
    for field, values in (("labels", labels_of(pod)), ("annotations", annotations_of(pod))):
        if path == f"metadata.{field}":
            return "\n".join(f'{name}="{value}"' for name, value in sorted(values.items()))
        if path.startswith(f"metadata.{field}['") and path.endswith("']"):
            return values.get(path[len(f"metadata.{field}['") : -2], "")
    if path in node:
        return str(node[path])
    found = dig(pod, *path.split("."))
    return found if isinstance(found, str) else ""


class Sources:
    """The sources of files and variables, read through the node's client."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        # Tokens by pod and request, with the time from which a new one is requested.
        self._tokens: dict[tuple[str, str, int], tuple[float, bytes]] = {}

    async def secret(self, key: Key, optional: bool) -> dict[str, bytes]:
        found = await self._get(SECRETS, "secret", key, optional)
        try:
            return {name: base64.b64decode(value) for name, value in (found.get("data") or {}).items()}
        except (binascii.Error, ValueError):
            raise VolumeError(f'secret "{key.name}" is not encoded in base64') from None

    async def config_map(self, key: Key, optional: bool) -> dict[str, bytes]:
        found = await self._get(CONFIG_MAPS, "configmap", key, optional)
        text = {name: value.encode() for name, value in (found.get("data") or {}).items()}
        return text | {name: base64.b64decode(value) for name, value in (found.get("binaryData") or {}).items()}

    async def _get(self, resource: GroupVersionResource, kind: str, key: Key, optional: bool) -> Obj:
        try:
            return await self._client.get(resource, key.name, key.namespace)
        except ApiError as error:
            if not error.is_not_found:
                raise
            if optional:
                return {}
            raise VolumeError(f'{kind} "{key.name}" not found') from None

    async def token(self, pod: Obj, audience: str, seconds: int) -> bytes:
        held = (uid_of(pod), audience, seconds)
        due, token = self._tokens.get(held, (0.0, b""))
        now = self._clock.monotonic()
        if now < due:
            return token
        spec: Obj = {
            "expirationSeconds": seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": uid_of(pod)},
        }
        if audience:
            spec["audiences"] = [audience]
        account = dig(pod, "spec", "serviceAccountName") or "default"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = await self._client.create(ACCOUNTS, request, namespace_of(pod), name=account, subresource="token")
        token = str(dig(made, "status", "token")).encode()
        self._tokens[held] = (now + seconds * _TOKEN_SHARE, token)
        return token

    def forget(self, uid: str) -> None:
        for held in [held for held in self._tokens if held[0] == uid]:
            del self._tokens[held]


class Volumes:
    def __init__(self, sources: Sources, node: Obj) -> None:
        self._sources = sources
        self._node = node

    async def write(self, pod: Obj, directory: Path) -> None:
        """Bring `directory` (a subdirectory per volume) up to date. Raises VolumeError."""
        for volume in dig(pod, "spec", "volumes") or ():
            place = directory / volume["name"]
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            if "emptyDir" not in volume:
                _write(place, await self._files(pod, volume))

    async def _files(self, pod: Obj, volume: Obj) -> list[File]:
        if (projected := volume.get("projected")) is not None:
            found: list[File] = []
            for source in projected.get("sources") or ():
                found += await self._from(pod, source, _mode(projected), volume["name"])
            return found
        kind = next((kind for kind in ("secret", "configMap", "downwardAPI") if kind in volume), None)
        if kind is None:
            raise VolumeError(f'volume "{volume["name"]}" is of a kind that simulated nodes do not have')
        return await self._from(pod, volume, _mode(volume[kind]), volume["name"])

    async def _from(self, pod: Obj, source: Obj, mode: int, volume: str) -> list[File]:
        namespace = namespace_of(pod)
        if (secret := source.get("secret")) is not None:
            key = Key(namespace, secret.get("secretName") or secret.get("name") or "")
            return list(_chosen(await self._sources.secret(key, bool(secret.get("optional"))), secret, mode))
        if (found := source.get("configMap")) is not None:
            key = Key(namespace, found.get("name") or "")
            return list(_chosen(await self._sources.config_map(key, bool(found.get("optional"))), found, mode))
        if (told := source.get("downwardAPI")) is not None:
            facts = ((item["path"], dig(item, "fieldRef", "fieldPath") or "") for item in told.get("items") or ())
            return [File(path, pod_field(pod, field, self._node).encode(), mode) for path, field in facts]
        if (token := source.get("serviceAccountToken")) is not None:
            seconds = int(token.get("expirationSeconds") or _TOKEN_SECONDS)
            return [File(token["path"], await self._sources.token(pod, token.get("audience") or "", seconds), mode)]
        raise VolumeError(f'volume "{volume}" is of a kind that simulated nodes do not have')


def _mode(source: Obj) -> int:
    # The node and its processes run as one user: no other user on the machine needs to read their files.
    return int(source.get("defaultMode") or 0o644) & 0o700 | 0o400


def _chosen(content: dict[str, bytes], source: Obj, mode: int) -> Iterator[File]:
    if not (items := source.get("items")):
        yield from (File(name, value, mode) for name, value in content.items())
        return
    for item in items:
        if item["key"] in content:
            yield File(item["path"], content[item["key"]], int(item.get("mode") or mode) & 0o700 | 0o400)
        elif not source.get("optional"):
            raise VolumeError(f"references non-existent config key: {item['key']}")


def _write(directory: Path, files: Iterable[File]) -> None:
    """Write the files, each replaced in one step, and delete others."""
    kept: set[Path] = set()
    for file in files:
        path = _inside(directory, file.path)
        kept.add(path)
        if path.is_file() and path.read_bytes() == file.content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f".{path.name}.new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, file.mode | 0o200)
        with os.fdopen(handle, "wb") as out:
            out.write(file.content)
        fresh.chmod(file.mode)
        fresh.replace(path)
    for path in directory.rglob("*"):
        if path not in kept and not path.is_dir():
            path.unlink()


def _inside(directory: Path, path: str) -> Path:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise VolumeError(f"{path!r} is not a path inside of a volume")
    return directory.joinpath(*parts)


def place_in(container: Obj, directory: Path) -> Callable[[str], Path | None]:
    """Maps a path of the container to one on this host; None for paths that are not mounted."""
    mounts = [(mount["mountPath"].rstrip("/"), mount) for mount in container.get("volumeMounts") or ()]

    def place(path: str) -> Path | None:
        for at, mount in sorted(mounts, key=lambda each: -len(each[0])):
            if path == at or path.startswith(f"{at}/"):
                below = "/".join(part for part in (mount.get("subPath") or "", path[len(at) :].strip("/")) if part)
                return _inside(directory / mount["name"], below) if below else directory / mount["name"]
        return None

    return place
