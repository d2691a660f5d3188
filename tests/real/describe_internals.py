"""Writes the layout of the internal structs that kube-apiserver prints in some of its errors.

When a pod's spec changes where it may not, the error ends in a diff of two Go structs. To say the same we must know the
names and order of their fields, which are in Kubernetes' own sources (not in its API). Run by hand after an upgrade:

    python tests/real/describe_internals.py <directory of the k8s.io/kubernetes module> <of k8s.io/api>
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOTS = ("PodSpec", "PodTemplateSpec", "PersistentVolumeClaimSpec", "PersistentVolumeSource", "EphemeralContainer")
TARGET = Path(__file__).parents[2] / "src" / "remuda" / "apiserver" / "builtin" / "internal_types.json"
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) (string|int32|int64|bool)$", re.MULTILINE)
_FIELD = re.compile(r"^\t(\w+)\s+([^\s`/]+)(?:\s+`json:\"([^\"]*)\")?")
_EMBEDDED = re.compile(r"^\t(\w+)(?:\s+`json:\",inline\")?")


def structs(source: str) -> dict[str, list[tuple[str, str, str]]]:
    """Fields by struct: Go name ("" when embedded), type, JSON name."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name, body in _STRUCT.findall(source):
        fields = []
        for line in body.splitlines():
            match = _FIELD.match(line)
            if match and not match.group(1)[0].islower():
                fields.append((match.group(1), match.group(2), (match.group(3) or "").split(",")[0]))
            elif not match and (embedded := _EMBEDDED.match(line)):
                fields.append(("", embedded.group(1), ""))
        found[name] = fields
    return found


def main(kubernetes: Path, api: Path) -> None:
    internal_source = (kubernetes / "pkg/apis/core/types.go").read_text()
    internal = structs(internal_source)
    served = structs((api / "core/v1/types.go").read_text())
    named = dict(_NAMED.findall(internal_source))
    # VolumeSource and its like are embedded: their fields belong to the struct around them.
    wire = {name: {go: js for go, _, js in fields if go} for name, fields in served.items()}
    layout: dict[str, list[list[str]]] = {}

    def describe(name: str) -> None:
        if name in layout or name not in internal:
            return
        rows = layout[name] = []
        for go, kind, _ in flat(name):
            bare = kind.lstrip("*[]")
            bare = bare.split("]")[-1] if bare.startswith("map") else bare
            rows.append([go, json_name(name, go), kind.replace(bare, named.get(bare, bare))])
            describe(bare)

    def flat(name: str) -> list[tuple[str, str, str]]:
        fields = []
        for field in internal[name]:
            if field[0]:
                fields.append(field)
            elif field[1] in internal:
                fields += flat(field[1])
        return fields

    def json_name(struct: str, go: str) -> str:
        for owner in (struct, *(kind for _, kind, _ in internal[struct] if kind in wire)):
            if wire.get(owner, {}).get(go):
                return wire[owner][go]
        for fields in (wire.get(kind, {}) for plain, kind, _ in internal[struct] if not plain):
            if fields.get(go):
                return fields[go]
        return go[0].lower() + go[1:]

    for root in ROOTS:
        describe(root)
    TARGET.write_text(json.dumps(layout, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
