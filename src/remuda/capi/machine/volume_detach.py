"""Volumes that are still attached to a node: some providers delete attached volumes with the machine.

The Node's status and VolumeAttachments both list attached volumes, and neither alone can be trusted.
Volumes of pods that draining leaves alone (DaemonSets, static pods, skipped ones) stay attached, so they are not waited for.
The matching is pure; :func:`attached_volumes` reads what it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from remuda.client.interface import Client
from remuda.kube.builtin_resources import PERSISTENT_VOLUMES, VOLUME_ATTACHMENTS
from remuda.kube.objects import dig, name_of, namespace_of

from ..machine_messages import listed
from .drain_plan import doing
from .eviction import DrainInputs, find_node, is_unreachable, read_all, read_plan

Obj = dict[str, Any]


_MOST = 5


@dataclass(frozen=True, slots=True)
class Attached:
    """The volumes that are waited for, by name; each in the words of the message."""

    claims: tuple[str, ...] = ()
    unclaimed: tuple[str, ...] = ()  # PersistentVolumes without a claim
    unknown_of_node: tuple[str, ...] = ()  # what the Node names and no PersistentVolume is
    unknown_of_attachments: tuple[str, ...] = ()  # PersistentVolumes that an attachment names and that are not there
    nameless: tuple[str, ...] = ()  # attachments that name no PersistentVolume

    @property
    def none(self) -> bool:
        return not (self.claims or self.unclaimed or self.unknown_of_node or self.unknown_of_attachments or self.nameless)

    def message(self, started: str) -> str:
        lines = [f"Waiting for Node volumes to be detached (started at {started})"]
        for names, what in (
            (self.claims, "PersistentVolumeClaims"),
            (self.unclaimed, "PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim"),
            (self.unknown_of_node, "Node with .status.volumesAttached entries not matching a PersistentVolume"),
            (
                self.unknown_of_attachments,
                "VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume",
            ),
            (self.nameless, "VolumeAttachment without .spec.source.persistentVolumeName"),
        ):
            if names:
                lines.append(f"* {what}: {listed(names, _MOST)}")
        return "\n".join(lines)


def names_on_node(node: Obj) -> set[str]:
    return {each["name"] for each in dig(node, "status", "volumesAttached") or () if each.get("name")}


def attachments_of(attachments: Iterable[Obj], node: str) -> list[Obj]:
    """The attachments of volumes to this node."""
    return [each for each in attachments if dig(each, "status", "attached") is True and dig(each, "spec", "nodeName") == node]


def claims_of(pods: Iterable[Obj]) -> set[str]:
    claims: set[str] = set()
    for pod in pods:
        for volume in dig(pod, "spec", "volumes") or ():
            if name := dig(volume, "persistentVolumeClaim", "claimName"):
                claims.add(f"{namespace_of(pod)}/{name}")
    return claims


def matched(on_node: Collection[str], attachments: Iterable[Obj], volumes: Iterable[Obj], ignored: Collection[str]) -> Attached:
    """`on_node`: volumes that the Node reports as attached; `ignored`: claims that are not waited for."""
    sources = {name_of(each): dig(each, "spec", "source", "persistentVolumeName") for each in attachments}
    wanted = {source for source in sources.values() if source}
    claims: set[str] = set()
    unclaimed: list[str] = []
    known: set[str] = set()
    for volume in volumes:
        names = {_attached_name(volume), name_of(volume)}
        if _attached_name(volume) not in on_node and name_of(volume) not in wanted:
            continue
        known |= names
        claim = dig(volume, "spec", "claimRef") or {}
        if claim.get("kind") == "PersistentVolumeClaim":
            claims.add(f"{claim.get('namespace') or ''}/{claim.get('name') or ''}")
        else:
            unclaimed.append(name_of(volume))
    return Attached(
        claims=tuple(sorted(claims.difference(ignored))),
        unclaimed=tuple(sorted(unclaimed)),
        unknown_of_node=tuple(sorted(set(on_node) - known)),
        unknown_of_attachments=tuple(sorted(wanted - known)),
        nameless=tuple(sorted(name for name, source in sources.items() if not source)),
    )


def _attached_name(volume: Obj) -> str:
    """The volume's name in the Node's status, as kubelet writes it; only CSI volumes have one."""
    csi = dig(volume, "spec", "csi")
    return f"kubernetes.io/csi/{csi.get('driver')}^{csi.get('volumeHandle')}" if isinstance(csi, dict) else ""


async def attached_volumes(client: Client, inputs: DrainInputs, name: str, now: float) -> Attached:
    """The volumes still to be detached from a node; none when the node is gone or out of reach, since detaching is impossible.

    Raises DrainError, and what the client raises.
    """
    node = await find_node(client, name)
    if node is None or is_unreachable(node):
        return Attached()
    on_node = names_on_node(node)
    with doing("failed to list VolumeAttachments: failed to list VolumeAttachments"):
        attachments = attachments_of(await read_all(client, VOLUME_ATTACHMENTS), name)
    if not on_node and not attachments:
        return Attached()
    with doing("failed to find PersistentVolumeClaims from Pods ignored during drain"):
        skipped = (await read_plan(client, inputs, name, now)).skipped
    with doing("failed to list PersistentVolumes"):
        return matched(on_node, attachments, await read_all(client, PERSISTENT_VOLUMES), claims_of(skipped))
