"""Origin marks of generated objects, with the labels and annotations of Rancher's `apply`
(docs/reference/objects.md#origin-marks).

All objects of one owner and one set share a label, by which unwanted ones are found, and annotations that say the same for
people. `…/applied`, the object as it was last written, is not among them: servers track that today.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from .objects import GroupVersionKind, Key, annotations_of

Obj = dict[str, Any]

PREFIX = "objectset.rio.cattle.io/"
HASH = f"{PREFIX}hash"
ID, OWNER_GVK, OWNER_NAME, OWNER_NAMESPACE = (f"{PREFIX}{each}" for each in ("id", "owner-gvk", "owner-name", "owner-namespace"))


class Marks(NamedTuple):
    labels: dict[str, str]
    annotations: dict[str, str]


def marks(set_id: str, owner: Obj) -> Marks:
    """The labels and annotations for objects of the set `set_id` that come from `owner`."""
    kind, key = GroupVersionKind.of(owner), Key.of(owner)
    # Go writes a slash before the version of a core kind, too.
    said = (set_id, f"{kind.group}/{kind.version}, Kind={kind.kind}", key.name, key.namespace)
    digest = hashlib.sha1("".join(said).encode(), usedforsecurity=False).hexdigest()
    return Marks({HASH: digest}, dict(zip((ID, OWNER_GVK, OWNER_NAME, OWNER_NAMESPACE), said, strict=True)))


def origin_of(obj: Obj, set_id: str) -> Key | None:
    """The owner in the annotations of an object of this set; None without them."""
    found = annotations_of(obj)
    if found.get(ID) != set_id or not found.get(OWNER_NAME):
        return None
    return Key(found.get(OWNER_NAMESPACE) or "", found[OWNER_NAME])


def without_marks(annotations: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if not name.startswith(PREFIX)}


# --- safe names -----------------------------------------------------------------------------------------------------------
#
# Names that are joined from others and cut to fit, byte for byte as Rancher's library does it (docs/reference/objects.md#names).
#
# Objects are looked up by computing their names again, so these must never change.

_MAX = 63
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


def safe_concat(*parts: str) -> str:
    """The parts with `-` between them; a result longer than a label is cut and ends in a hash of the whole."""
    full = "-".join(parts)
    if len(full) <= _MAX:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()
    # A name must not end in a dash before its hash begins with one.
    if full[56] in _ALPHANUMERIC:
        return f"{full[:57]}-{digest[:5]}"
    return f"{full[:56]}-{digest[:6]}"


def safe_concat_within(most: int, *parts: str) -> str:
    """The same for another limit, such as that of a hostname."""
    full = "-".join(parts)
    if len(full) <= most:
        return full
    if most <= 5:
        return full[:most]
    digest = hashlib.sha256(full.encode()).hexdigest()
    if full[max(most - 7, 0)] in _ALPHANUMERIC:
        kept, hashed = full[: most - 6], digest[:5]
    else:
        kept, hashed = full[: max(most - 7, 0)], digest[:6]
    return f"{kept}-{hashed}" if kept else hashed
