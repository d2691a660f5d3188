"""The cluster's spec at the time of an etcd snapshot, as stored in the snapshot's metadata
(docs/reference/operations.md#snapshot-objects).

The distribution stores a map of strings with each snapshot; it arrives as base64 of JSON, and in it the cluster's spec as
base64 of gzipped JSON. All of it comes from a host, so it is read with care: its size is limited.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig

Obj = dict[str, Any]

SPEC_KEY = "provisioning-cluster-spec"
# The largest object that etcd takes is 1.5 MiB; a spec can't have been larger.
_LARGEST = 2 * 2**20
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
