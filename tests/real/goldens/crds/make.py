"""Makes tests/unit/api/cluster_x_k8s_io/upstream_crds.json: what Cluster API's own definitions say, without their words.

Run it by hand with a Go toolchain when the pinned Cluster API changes: `python -m tests.real.goldens.crds.make`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

Obj = dict[str, Any]
MODULE = "sigs.k8s.io/cluster-api"
PLURALS = ("clusters", "machinedeployments", "machinedrainrules", "machinehealthchecks", "machines", "machinesets")
TESTS = Path(__file__).parents[3]
TARGET = TESTS / "unit" / "api" / "cluster_x_k8s_io" / "upstream_crds.json"


def without_words(schema: Any) -> Any:
    """A schema without descriptions; a property that is called `description` stays."""
    if isinstance(schema, list):
        return [without_words(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Obj = {}
    for keyword, value in schema.items():
        if keyword == "properties":
            kept[keyword] = {name: without_words(field) for name, field in value.items()}
        elif keyword == "required":
            kept[keyword] = sorted(value)
        elif keyword != "description":
            kept[keyword] = without_words(value)
    return kept


def reduced(crd: Obj) -> Obj:
    """What a definition says to programs: everything in its spec but descriptions."""
    versions = []
    for version in crd["spec"]["versions"]:
        columns = version.get("additionalPrinterColumns", [])
        told = {name: value for name, value in version.items() if name not in ("schema", "additionalPrinterColumns")}
        told["columns"] = [{name: value for name, value in column.items() if name != "description"} for column in columns]
        told["schema"] = without_words(version["schema"]["openAPIV3Schema"])
        versions.append(told)
    return {**crd["spec"], "versions": versions}


def upstream() -> dict[str, Obj]:
    """The reduced definitions of the pinned Cluster API, by name."""
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod"}
    command = ["go", "mod", "download", "-json", MODULE]
    told = subprocess.run(
        command, cwd=TESTS / "real" / "capi", env=environment, capture_output=True, text=True, check=True
    ).stdout
    bases = Path(json.loads(told)["Dir"]) / "core" / "config" / "crd" / "bases"
    found = [yaml.safe_load((bases / f"cluster.x-k8s.io_{plural}.yaml").read_text()) for plural in PLURALS]
    return {crd["metadata"]["name"]: reduced(crd) for crd in found}


def text(crds: dict[str, Obj]) -> str:
    lines = (f"{json.dumps(name)}: {json.dumps(crd, sort_keys=True, separators=(',', ':'))}" for name, crd in crds.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(text(upstream()))
