"""Write `builtins.json`, the description of Kubernetes' built-in types that Remuda ships.

Run as `python tests/real/describe_types.py [--check]` with the project installed. It starts a real kube-apiserver, reads
its OpenAPI v3 and aggregated discovery documents, asks a small Go program (`kubernetes/types`) what those do not tell
(Go names, empty-value rules, protobuf numbers), and joins the three. Descriptions are dropped: they are others' words.
At the end every schema is expanded again and compared with what the server said. `--check` writes nothing and fails when
the file would change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from remuda.apiserver.scheme import builtin_types
from remuda.apiserver.scheme import builtin_types as d
from tests.real import build
from tests.real.cluster import RealCluster

OUTPUT = Path(d.__file__).with_name("builtins.json")
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
Json = dict[str, Any]


class Served:
    """What a running server says about its types."""

    def __init__(self, cluster: RealCluster) -> None:
        self.schemas: dict[str, Json] = {}
        paths = _get(cluster, "/openapi/v3")["paths"]
        for path, entry in paths.items():
            document = _get(cluster, entry["serverRelativeURL"])
            for name, found in document.get("components", {}).get("schemas", {}).items():
                self._add(path, name, without_descriptions(found))
        self.versions: list[tuple[str, Json]] = []
        for path in ("/api", "/apis"):
            for group in _get(cluster, path, Accept=AGGREGATED)["items"]:
                self.versions += [(group["metadata"].get("name", ""), version) for version in group["versions"]]

    def _add(self, path: str, name: str, found: Json) -> None:
        if name in builtin_types.IN_EVERY_GROUP:
            group, _, version = path.removeprefix("apis/").removeprefix("api/").rpartition("/")
            if found.pop(builtin_types.KINDS) != builtin_types.kinds_in_document(name, group, version):
                raise SystemExit(f"{name} has other kinds than expected in {path}")
        if self.schemas.setdefault(name, found) != found:
            raise SystemExit(f"two OpenAPI documents disagree on {name}")


def _get(cluster: RealCluster, path: str, **headers: str) -> Json:
    status, body = cluster.request("GET", path, headers=headers)
    if status != 200:
        raise SystemExit(f"GET {path} answered {status}: {body}")
    return dict(body)


def without_descriptions(found: Json) -> Json:
    """A copy of a schema without prose, at any depth; a property may be called `description`."""
    result: Json = {}
    for key, value in found.items():
        if key == "description":
            continue
        if key == "properties":
            result[key] = {name: without_descriptions(each) for name, each in value.items()}
        elif isinstance(value, dict) and key in ("items", "additionalProperties"):
            result[key] = without_descriptions(value)
        elif key in ("allOf", "oneOf", "anyOf"):
            result[key] = [without_descriptions(each) for each in value]
        else:
            result[key] = value
    return result


def go_types(group_versions: list[str]) -> Json:
    """What the Go program says about the types of these group versions."""
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(
        ["go", "run", "-trimpath", "./types", *group_versions],
        cwd=build.HERE / "kubernetes",
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(json.loads(done.stdout))


class Interned:
    """Values listed once and named by their position."""

    def __init__(self, first: list[Any]) -> None:
        self.values: list[Any] = []
        self._positions: dict[str, int] = {}
        for value in first:
            self.index(value)

    def index(self, value: Any) -> int:
        key = json.dumps(value, sort_keys=True)
        if key not in self._positions:
            self._positions[key] = len(self.values)
            self.values.append(value)
        return self._positions[key]


class Writer:
    """Builds the file's content: definitions that served kinds reach, renumbered, with their additions."""

    def __init__(self, served: Served, go: Json) -> None:
        self._served = served
        self._go = go
        self._types = Interned([])
        self._additions = Interned([{}])
        self._definitions: list[list[Any]] = []
        self._positions: dict[int, int] = {}
        self._kinds: list[list[Any]] = []

    def document(self) -> Json:
        for kind in self._go["kinds"]:
            source = self._go["definitions"][kind["Definition"]]
            if source["model"] in self._served.schemas:
                self._kinds.append([kind["Group"], kind["Version"], kind["Kind"], self._define(kind["Definition"])])
        known = {raw[0] for raw in self._definitions}
        for name in sorted(self._served.schemas.keys() - known):
            self._definitions.append([name, "", 0, None, 0])
        self._add_additions()
        return {
            "t": self._types.values,
            "x": self._additions.values,
            "d": [_short(raw) for raw in self._definitions],
            "g": self._kinds,
            "r": [_resource(group, version, each) for group, version in self._served.versions for each in version["resources"]],
        }

    def _define(self, position: int) -> int:
        if position in self._positions:
            return self._positions[position]
        source = self._go["definitions"][position]
        name = source["model"] or source["go"]
        flags = d.DEFINITION_CUSTOM if source.get("custom") else 0
        if name not in self._served.schemas:
            flags |= d.DEFINITION_HIDDEN
        raw: list[Any] = [name, source["go"], flags, [], 0]
        self._positions[position] = len(self._definitions)
        self._definitions.append(raw)
        required = set(self._served.schemas.get(name, {}).get("required", ()))
        for field in source["fields"] or ():
            if source.get("custom") and not field.get("proto"):
                continue
            raw[3].append([field["json"], self._type(field["type"]), _field_flags(field, required), field.get("proto", 0), 0])
        return self._positions[position]

    def _type(self, position: int) -> int:
        match self._go["types"][position]:
            case ["#", int(definition)]:
                return self._types.index(["#", self._define(definition)])
            case ["{}", int(key), int(elem), *named]:
                return self._types.index(["{}", self._type(key), self._type(elem), *named])
            case [str(sign), int(elem), *named]:
                return self._types.index([sign, self._type(elem), *named])
            case scalar:
                return self._types.index(scalar)

    def _add_additions(self) -> None:
        """Compare what follows from the Go types with what was served, and keep the difference."""
        plain = d.Description(json.dumps(self._plain()).encode())
        fields_by_name = {raw[0]: raw[3] for raw in self._definitions}
        for raw in self._definitions:
            name = raw[0]
            wanted = self._served.schemas.get(name)
            if wanted is None:
                continue
            found = plain.definition(name)
            if found.custom or found.fields is None:
                raw[4] = self._additions.index(wanted)
                continue
            self._add_field_additions(plain, found, wanted, fields_by_name)
            rest = {key: value for key, value in wanted.items() if key not in ("type", "properties", "required")}
            raw[4] = self._additions.index(rest)

    def _add_field_additions(
        self, plain: d.Description, found: d.Definition, wanted: Json, fields_by_name: dict[str, list[Any]]
    ) -> None:
        for field, raw in zip(found.fields or (), fields_by_name[found.name], strict=True):
            if field.inline:
                inner = plain.definition(field.type.value.definition)
                for each in fields_by_name[inner.name]:
                    if each[0] in wanted.get("required", ()):
                        each[2] |= d.FIELD_REQUIRED
                self._add_field_additions(plain, inner, wanted, fields_by_name)
                continue
            served = wanted["properties"][field.name]
            raw[4] = self._additions.index(difference(builtin_types.derive_field(field, plain), served))

    def _plain(self) -> Json:
        return {"t": self._types.values, "x": [{}], "d": self._definitions, "g": [], "r": []}


def _field_flags(field: Json, required: set[str]) -> int:
    flags = d.FIELD_REQUIRED if field["json"] in required else 0
    flags |= d.FIELD_OMITEMPTY if field.get("omitempty") else 0
    flags |= d.FIELD_OMITZERO if field.get("omitzero") else 0
    return flags | (d.FIELD_INLINE if field.get("inline") else 0)


def _resource(group: str, version: Json, found: Json) -> list[Any]:
    subresources = [
        [each["subresource"], *_kind_of(each, group, version["version"]), each["verbs"]] for each in found.get("subresources", ())
    ]
    return [
        group,
        version["version"],
        found["resource"],
        found["responseKind"]["kind"],
        found["singularResource"],
        d.RESOURCE_NAMESPACED if found["scope"] == "Namespaced" else 0,
        found["verbs"],
        found.get("shortNames", []),
        found.get("categories", []),
        subresources,
    ]


def _kind_of(found: Json, group: str, version: str) -> list[str]:
    kind = found["responseKind"]
    if kind["version"]:
        return [kind["group"], kind["version"], kind["kind"]]
    return [group, version, kind["kind"]]


def difference(derived: Json, wanted: Json) -> Json:
    """The addition that makes `derived` equal to `wanted`."""
    result: Json = {key: None for key in derived if key not in wanted}
    for key, value in wanted.items():
        if key in derived and derived[key] == value:
            continue
        if key in ("items", "additionalProperties") and isinstance(derived.get(key), dict):
            result[key] = difference(derived[key], value)
        else:
            result[key] = value
    return result


def _short(raw: list[Any]) -> list[Any]:
    name, go, flags, fields, addition = raw
    if fields is not None:
        fields = [_trimmed(each) for each in fields]
    return [name, go, flags, fields, addition]


def _trimmed(values: list[Any]) -> list[Any]:
    end = len(values)
    while end and values[end - 1] == 0:
        end -= 1
    return values[:end] if end > 1 else values[:2]


def verify(content: bytes, served: Served) -> None:
    """Every schema, expanded again, must be what the server said."""
    written = d.Description(content)
    for name, wanted in served.schemas.items():
        made = builtin_types.derive(written.definition(name), written)
        if made != wanted:
            raise SystemExit(f"{name} does not come back as served:\n{json.dumps(made)}\n{json.dumps(wanted)}")


def main(arguments: list[str]) -> int:
    with RealCluster(fsync=False) as cluster:
        served = Served(cluster)
    group_versions = [f"{group}/{version['version']}".lstrip("/") for group, version in served.versions]
    document = Writer(served, go_types(group_versions)).document()
    content = json.dumps(document, separators=(",", ":"), sort_keys=True).encode() + b"\n"
    verify(content, served)
    print(f"{len(document['d'])} definitions, {len(document['r'])} resources, {len(content)} bytes")
    if "--check" not in arguments:
        OUTPUT.write_bytes(content)
        return 0
    if OUTPUT.read_bytes() != content:
        print(f"{OUTPUT.name} is not what the pinned Kubernetes says: run tests/real/describe_types.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
