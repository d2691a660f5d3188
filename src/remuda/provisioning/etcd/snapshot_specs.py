"""The cluster's spec at the time of an etcd snapshot, as stored in the snapshot's metadata
(docs/reference/operations.md#snapshot-objects).

A restore may bring parts of that spec back (:func:`restored`). The distribution stores a map of strings with each snapshot; it
arrives as base64 of JSON, and in it the cluster's spec as base64 of gzipped JSON. All of it comes from a host, so it is read with
care: its size is limited.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any, Final

from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig

Obj = dict[str, Any]

SPEC_KEY = "provisioning-cluster-spec"
# The largest object that etcd takes is 1.5 MiB; a spec can't have been larger.
_LARGEST = 2 * 2**20
# The fields that a restore writes back, by `restoreRKEConfig`: of the spec itself, and of its `rkeConfig`
# (docs/reference/operations.md#restore).
NONE: Final = frozenset({"", "none"})
_VERSION = "kubernetesVersion"
_OF_CLUSTER = (
    _VERSION,
    "clusterAgentDeploymentCustomization",
    "defaultPodSecurityAdmissionConfigurationTemplateName",
    "fleetAgentDeploymentCustomization",
    "webhookDeploymentCustomization",
)
_OF_MACHINES = (
    "additionalManifest",
    "chartValues",
    "machineGlobalConfig",
    "machineSelectorConfig",
    "networking",
    "registries",
    "upgradeStrategy",
)
_GZIP = 16 + zlib.MAX_WBITS


class SnapshotSpecError(ValueError):
    """Malformed metadata of a snapshot; the text says what is wrong."""


def cluster_spec(snapshot: Obj) -> Obj | None:
    """The spec of the clusters.provisioning.cattle.io; None if the snapshot has none. Raises SnapshotSpecError."""
    text = dig(snapshot, "snapshotFile", "metadata")
    if not text:
        return None
    remembered = _object(_decoded(text, "its metadata"), "its metadata")
    packed = remembered.get(SPEC_KEY)
    if not packed:
        return None
    return _object(_unpacked(_decoded(packed, SPEC_KEY)), SPEC_KEY)


def packed_cluster_spec(packed: str) -> Obj:
    """The spec in the annotation of a control plane. Raises SnapshotSpecError."""
    return _object(_unpacked(_decoded(packed, SPEC_KEY)), SPEC_KEY)


def restored(spec: Obj, remembered: Mapping[str, Any], mode: str) -> Obj:
    """A cluster's spec with the fields of an earlier one that a restore of this mode brings back."""
    if mode in NONE:
        return spec
    if mode == _VERSION:
        return _with(spec, remembered, (_VERSION,))
    before = remembered.get("rkeConfig")
    machines = _with(spec.get("rkeConfig") or {}, before if isinstance(before, Mapping) else {}, _OF_MACHINES)
    return {**_with(spec, remembered, _OF_CLUSTER), "rkeConfig": machines}


def _with(now: Mapping[str, Any], before: Mapping[str, Any], fields: tuple[str, ...]) -> Obj:
    kept = {field: value for field, value in now.items() if field not in fields}
    return kept | {field: before[field] for field in fields if before.get(field) is not None}


def request_of(restore: Mapping[str, Any]) -> str:
    """One request of a restore as a text, as in Rancher: hosts note by it what they have done for the request."""
    source = restore.get("name") or (f"machine/{restore['fromMachine']}" if restore.get("fromMachine") else "")
    return f"&{{{source} {restore.get('generation') or 0} {restore.get('restoreRKEConfig') or ''}}}"


def is_pending(restore: Mapping[str, Any] | None, status: Mapping[str, Any]) -> bool:
    """True unless the restore that a cluster asks for has ended; `status` is that of its control plane."""
    if not restore or not (restore.get("name") or restore.get("fromMachine")):
        return False
    return status.get("etcdSnapshotRestore") != restore or status.get("etcdSnapshotRestorePhase") not in ("Finished", "Failed")


def _decoded(text: object, what: str) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise SnapshotSpecError(f"{what} is not base64") from None


def _unpacked(packed: bytes) -> bytes:
    decompressor = zlib.decompressobj(_GZIP)
    try:
        found = decompressor.decompress(packed, _LARGEST)
    except zlib.error:
        raise SnapshotSpecError(f"{SPEC_KEY} is not gzip") from None
    if not decompressor.eof:
        raise SnapshotSpecError(f"{SPEC_KEY} is cut off, or larger than {_LARGEST} bytes")
    return found


def _object(data: bytes, what: str) -> Obj:
    try:
        found = jsonio.loads(data)
    except ValueError:
        raise SnapshotSpecError(f"{what} is not JSON") from None
    if not isinstance(found, dict):
        raise SnapshotSpecError(f"{what} is not a JSON object")
    return found
