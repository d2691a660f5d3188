"""The manifests directory: its content is applied to the cluster, as k3s does with its AddOns.

Each server handles its own directory, and an Addon of the file's name records what was applied, so that it is applied once.
Objects that a file no longer contains are removed from the cluster. When servers have different versions of a file, the newest
one counts: a plan that reaches one server after the other must not bring old ones back in between.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from remuda.client.interface import Client
from remuda.client.server_side_apply import apply_owned
from remuda.kube.clock import Clock
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, dig, name_of, namespace_of, with_metadata

from ..config.settings import Settings
from ..crds import ADDONS

Obj = dict[str, Any]
log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
MANAGER: Final = "deploy@remuda"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 5.0


class ResourceMapping(NamedTuple):
    """A kind's resource in paths, and whether its objects have a namespace."""

    resource: GroupVersionResource
    namespaced: bool


# None for a kind that is not served (yet).
Places = Callable[[GroupVersionKind], ResourceMapping | None]


class AddonObject(NamedTuple):
    """An object that was applied, as an Addon records it."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> AddonObject:
        api_version, kind, namespace, name = text.split("|")
        return cls(api_version, kind, namespace, name)

    def __str__(self) -> str:
        return "|".join(self)

    @property
    def gvk(self) -> GroupVersionKind:
        return GroupVersionKind.of({"apiVersion": self.api_version, "kind": self.kind})


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file in its current state."""

    name: str
    path: Path
    modified: float
    content: bytes

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def manifests_in(directory: Path) -> list[Path]:
    """The manifest files, by name; without those that have a `.skip` beside them."""
    if not directory.is_dir():
        return []
    found = (path for path in directory.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    return sorted(path for path in found if not path.with_name(f"{path.name}.skip").exists())


def read(path: Path) -> Manifest:
    return Manifest(path.stem, path, path.stat().st_mtime, path.read_bytes())


def is_newer(manifest: Manifest, addon: Obj | None) -> bool:
    """Tells whether a file is to be applied, given its last applied version."""
    if addon is None:
        return True
    if dig(addon, "spec", "checksum") == manifest.checksum:
        return False
    return manifest.modified > float(dig(addon, "status", "modified") or 0)


def objects_in(manifest: Manifest) -> list[Obj]:
    """The objects in a file. Raises YamlError and ValueError."""
    found: list[Obj] = []
    for document in yamlio.loads_all(manifest.content):
        if document is None:
            continue
        items = document.get("items") if isinstance(document, dict) and str(document.get("kind", "")).endswith("List") else None
        for each in items if isinstance(items, list) else [document]:
            if not isinstance(each, dict) or not each.get("kind") or not each.get("apiVersion") or not name_of(each):
                raise ValueError("a document has no apiVersion, kind or name")
            found.append(each)
    return found


class Deploying:
    """The controller of one server's directory."""

    def __init__(self, settings: Settings, client: Client, places: Places, clock: Clock) -> None:
        self._settings = settings
        self._client = client
        self._places = places
        self._clock = clock
        # Each file's state when it was last handled: unchanged files are not read again.
        self._dealt: dict[Path, tuple[float, int]] = {}
        self._again: dict[Path, float] = {}
        self._said: dict[Path, str] = {}

    async def run(self) -> None:
        await self._remove_vanished()
        while True:
            await self.step()
            await self._clock.sleep(_LOOK_SECONDS)

    async def step(self) -> None:
        present = manifests_in(self._settings.paths.manifests)
        for path in present:
            if self._is_due(path):
                await self._attempt(path)
        for path in [path for path in self._dealt if path not in present]:
            try:
                await self._withdraw(path.stem)
            except ApiError as error:
                log.warning("objects of %s can't be removed: %s", path, error)
                continue
            del self._dealt[path]

    def _is_due(self, path: Path) -> bool:
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        if self._dealt.get(path) == (status.st_mtime, status.st_size):
            return False
        return self._clock.monotonic() >= self._again.get(path, 0.0)

    async def _attempt(self, path: Path) -> None:
        """Handle a file; an error is reported once, and the file is tried again."""
        try:
            manifest = read(path)
            if path.stem in self._settings.disabled:
                await self._withdraw(path.stem)
            else:
                await self._deploy(manifest)
        except (ApiError, OSError, ValueError) as error:
            if self._said.get(path) != str(error):
                self._said[path] = str(error)
                log.warning("%s can't be applied: %s; trying again", path, error)
            self._again[path] = self._clock.monotonic() + _AGAIN_SECONDS
            return
        self._dealt[path] = (manifest.modified, len(manifest.content))
        self._again.pop(path, None)
        self._said.pop(path, None)

    async def _deploy(self, manifest: Manifest) -> None:
        addon = await self._addon(manifest.name)
        if not is_newer(manifest, addon):
            return
        before = _remembered(addon)
        wanted = [self._placed(obj) for obj in objects_in(manifest)]
        after = [reference for _, _, reference in wanted]
        # Recorded first: an object that is applied and then not recorded would never be removed.
        await self._note(manifest, addon, [*before, *(each for each in after if each not in before)], done=False)
        for place, obj, _ in wanted:
            await apply_owned(self._client, place.resource, obj, MANAGER)
        await self._delete(each for each in before if each not in after)
        await self._note(manifest, await self._addon(manifest.name), after, done=True)
        log.info("applied %s", manifest.path)

    def _placed(self, obj: Obj) -> tuple[ResourceMapping, Obj, AddonObject]:
        place = self._places(GroupVersionKind.of(obj))
        if place is None:
            raise ValueError(f"{obj['kind']} of {obj['apiVersion']} is not served")
        namespace = (namespace_of(obj) or "default") if place.namespaced else ""
        placed = with_metadata(obj, namespace=namespace) if namespace else obj
        return place, placed, AddonObject(obj["apiVersion"], obj["kind"], namespace, name_of(obj))

    async def _delete(self, references: Iterable[AddonObject]) -> None:
        for each in reversed(list(references)):
            place = self._places(each.gvk)
            if place is None:
                continue
            try:
                await self._client.delete(place.resource, each.name, each.namespace, propagation="Background")
            except ApiError as error:
                if not error.is_not_found:
                    raise
            else:
                log.info("removed %s %s/%s", each.kind, each.namespace, each.name)

    # --- Addons ---------------------------------------------------------------------------------------------------------

    async def _addon(self, name: str) -> Obj | None:
        try:
            return await self._client.get(ADDONS, name, NAMESPACE)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def _note(self, manifest: Manifest, addon: Obj | None, objects: list[AddonObject], *, done: bool) -> None:
        status: Obj = {"node": self._settings.node_name, "objects": [str(each) for each in objects]}
        status["modified"] = manifest.modified if done else float(dig(addon, "status", "modified") or 0)
        checksum = manifest.checksum if done else dig(addon, "spec", "checksum") or ""
        spec = {"source": str(manifest.path), "checksum": checksum}
        if addon is None:
            made = {
                "apiVersion": "k3s.cattle.io/v1",
                "kind": "Addon",
                "metadata": {"name": manifest.name, "namespace": NAMESPACE},
            }
            await self._client.create(ADDONS, {**made, "spec": spec, "status": status}, NAMESPACE)
            return
        # With its resourceVersion: when another server handles the same file, this one tries again.
        await self._client.update(ADDONS, {**addon, "spec": spec, "status": status})

    async def _withdraw(self, name: str) -> None:
        """Remove a deleted or disabled file's objects, unless another server has applied it since."""
        addon = await self._addon(name)
        if addon is None or dig(addon, "status", "node") != self._settings.node_name:
            return
        await self._delete(_remembered(addon))
        await self._client.delete(ADDONS, name, NAMESPACE)

    async def _remove_vanished(self) -> None:
        """Withdraw files of this server that were deleted while it did not run."""
        present = {path.stem for path in manifests_in(self._settings.paths.manifests)}
        try:
            for addon in (await self._client.list(ADDONS, NAMESPACE))["items"]:
                if name_of(addon) not in present:
                    await self._withdraw(name_of(addon))
        except ApiError as error:
            log.warning("Addons of files that are gone can't be removed: %s", error)


def _remembered(addon: Obj | None) -> list[AddonObject]:
    return [AddonObject.parse(text) for text in dig(addon, "status", "objects") or ()] if addon is not None else []
