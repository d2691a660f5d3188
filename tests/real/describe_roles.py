"""Write `bootstrap_policy.json`, the roles and bindings that every Kubernetes API starts with, from a real kube-apiserver.

Run as `python tests/real/describe_roles.py [--check]` with the project installed. `remuda.apiserver.auth.bootstrap_policy`
explains the file's short form and reads it. `--check` writes nothing and fails when the file would change.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from remuda.apiserver.auth import bootstrap_policy
from remuda.kube.encoding import jsonio
from tests.real.cluster import RealCluster
from tests.unit.apiserver.auth.short_roles import shorten

API = "/apis/rbac.authorization.k8s.io/v1"
SELECTOR = "labelSelector=kubernetes.io/bootstrapping%3Drbac-defaults"

Json = dict[str, Any]


def real_objects() -> list[Json]:
    """What a fresh server made for itself, without what the store added."""
    found: list[Json] = []
    # No controllers: they would fill in the rules of aggregated roles.
    with RealCluster(fsync=False) as cluster:
        for resource, kind in bootstrap_policy.KINDS.items():
            status, body = cluster.request("GET", f"{API}/{resource}?{SELECTOR}")
            if status != 200:
                raise SystemExit(f"{resource}: {status} {body}")
            found += [bare(kind, item) for item in body["items"]]
    return found


def bare(kind: str, item: Json) -> Json:
    kept = {key: item["metadata"][key] for key in ("name", "namespace", "labels", "annotations") if key in item["metadata"]}
    content = {key: value for key, value in item.items() if key in ("rules", "aggregationRule", "subjects", "roleRef")}
    if content.get("rules", "") is None:
        del content["rules"]
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": kept, **content}


def rendered(objects: list[Json]) -> bytes:
    """One object a line, sorted: small, and a change shows as the lines that changed."""
    lines = sorted(jsonio.dumps(shorten(obj)).decode() for obj in objects)
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode()


def main(arguments: list[str]) -> int:
    objects = real_objects()
    for obj in objects:
        if bootstrap_policy.expand(shorten(obj)) != obj:
            raise SystemExit(f"the short form loses something of {obj['kind']} {obj['metadata']['name']}")
    content = rendered(objects)
    if "--check" in arguments:
        return 0 if bootstrap_policy.PATH.read_bytes() == content else 1
    bootstrap_policy.PATH.write_bytes(content)
    print(f"{len(objects)} objects in {bootstrap_policy.PATH}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
