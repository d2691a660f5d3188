"""Random objects of a CRD's schema, with the values that conversions get wrong: zeros, empties, nulls, odd durations and times.

They need not be valid, only readable: a conversion webhook is asked before anything is validated.
"""

from __future__ import annotations

import random
from typing import Any

import yaml

from tests.e2e.upstream_capi import BOOTSTRAP, INFRA, sources

Obj = dict[str, Any]

GROUP = "cluster.x-k8s.io"
KINDS = ("Cluster", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck", "MachineDrainRule")
DATA = "cluster.x-k8s.io/conversion-data"

# Kinds with a CRD, so that a reference to them has an apiVersion.
PROVIDED = [(INFRA, "TestCluster"), (INFRA, "TestMachine"), (INFRA, "TestMachineTemplate"), (BOOTSTRAP, "TestConfigTemplate")]

_WORDS = ["", "a", "b-c", "Ünïcode <&> \"'", "x" * 70]
_INTEGERS = [0, 0, 1, -1, 3, 7200, 2**31 - 1, -(2**31)]
_TIMES = ["2024-02-29T12:34:56Z", "2024-02-29T12:34:56.789Z", "2024-02-29T23:34:56+02:00", "1999-12-31T19:00:00-05:30"]
_DURATIONS = ["0s", "0", "1s", "10m0s", "90m", "1h", "1.5h", "999ms", "1.999s", "-1.5s", "-3h", "2562047h", "-2562047h", "100us"]
_VALUES: list[Any] = [True, False, 0, 1.5, "", "text", [], {}, [1, {"a": None}], {"b": {"c": []}}, None]


def schemas() -> dict[tuple[str, str], Obj]:
    """By kind and version."""
    found = {}
    for path in sorted((sources() / "crd" / "bases").glob("*.yaml")):
        crd = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        kind = crd["spec"]["names"]["kind"]
        if kind in KINDS and crd["spec"]["group"] == GROUP:
            for version in crd["spec"]["versions"]:
                found[kind, version["name"]] = version["schema"]["openAPIV3Schema"]
    return found


class Samples:
    def __init__(self, chance: random.Random, found: dict[tuple[str, str], Obj]) -> None:
        self.chance = chance
        self.schemas = found

    def obj(self, kind: str, version: str) -> Obj:
        """Some are full, some are thin; one in ten has no spec at all, as when a server converts managed fields."""
        schema = self.schemas[kind, version]["properties"]
        density = self.chance.choice([0.1, 0.5, 0.9, 1.0])
        found: Obj = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": self._metadata()}
        for section in ("spec", "status"):
            if section in schema and self.chance.random() > 0.1:
                found[section] = self._object(schema[section], density)
        return found

    def _metadata(self) -> Obj:
        found: Obj = {"name": "o", "generation": 3, "resourceVersion": "7", "labels": {"l": "v"}}
        if self.chance.random() < 0.9:
            found["namespace"] = "ns"
        if self.chance.random() < 0.5:
            found["annotations"] = {"k": "v"}
        return found

    def _object(self, schema: Obj, density: float) -> Obj:
        properties: Obj = schema["properties"]
        found: Obj = {}
        for name, child in properties.items():
            if self.chance.random() < density:
                found[name] = None if self._is_null(name) else self._value(name, child, density)
        if {"apiGroup", "kind", "name"} == properties.keys() and found:
            group, kind = self.chance.choice(PROVIDED)
            found |= {"apiGroup": group, "kind": kind}
        if "fieldPath" in properties and "apiVersion" in found:
            found["apiVersion"] = self.chance.choice([f"{INFRA}/v1", f"{BOOTSTRAP}/v7alpha1", "v1", "", "/", "a/"])
        return found

    def _is_null(self, name: str) -> bool:
        # The one field that Go reads no null into.
        return name != "timeout" and self.chance.random() < 0.03

    def _value(self, name: str, schema: Obj, density: float) -> Any:
        if schema.get("x-kubernetes-int-or-string"):
            return self.chance.choice([0, 1, 40, "0%", "33%", "", "7"])
        match schema.get("type"):
            case "object" if "properties" in schema:
                return {} if self.chance.random() < 0.05 else self._object(schema, density)
            case "object":
                keys = self.chance.sample(["", "k1", "a2", "Z"], self.chance.randrange(4))
                return {key: self._value(key, schema["additionalProperties"], density) for key in keys}
            case "array":
                return [self._value(name, schema["items"], density) for _ in range(self.chance.choice([0, 1, 1, 3]))]
            case "integer":
                return self.chance.choice(_INTEGERS)
            case "boolean":
                return self.chance.random() < 0.5
            case "string":
                return self._string(name, schema)
        return self.chance.choice(_VALUES)

    def _string(self, name: str, schema: Obj) -> str:
        if schema.get("format") == "date-time":
            return self.chance.choice(_TIMES)
        if name == "timeout" or name.endswith("Timeout"):
            return self.chance.choice(_DURATIONS)
        if name == "phase":
            return self.chance.choice(["", "Running", "Updating", "Deleting"])
        return self.chance.choice([*_WORDS, *schema.get("enum", [])])
