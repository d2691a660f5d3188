"""Built-in objects as Go writes them, in protobuf and in JSON, made by `kubernetes/vectors`.

Run as `python tests/real/protobuf_vectors.py` to write the small selection that the unit tests read
(`tests/unit/apiserver/scheme/protobuf_vectors.jsonl`); `test_protobuf.py` beside this file asks for every kind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.real import build

OUTPUT = build.HERE.parent / "unit" / "apiserver" / "scheme" / "protobuf_vectors.jsonl"

# Small kinds that together have every sort of field: maps of text, bytes and messages, times, quantities, …
SELECTION = (
    "v1/Secret",
    "v1/ConfigMap",
    "v1/ServiceAccount",
    "v1/Event",
    "v1/DeleteOptions",
    "v1/ResourceQuota",
    "v1/Service",
    "v1/PersistentVolumeClaim",
    "v1/Node",
    "apps/v1/ControllerRevision",
    "authentication.k8s.io/v1/TokenRequest",
    "authorization.k8s.io/v1/SubjectAccessReview",
    "autoscaling/v1/Scale",
    "coordination.k8s.io/v1/Lease",
    "policy/v1/Eviction",
    "policy/v1/PodDisruptionBudget",
)
# These are large when full, so that only the empty ones are kept.
EMPTY_SELECTION = ("v1/Pod", "apps/v1/Deployment", "apiextensions.k8s.io/v1/CustomResourceDefinition")


def vectors(*kinds: str) -> list[str]:
    """Lines of JSON with `name`, `protobuf` (base64) and `json`; kinds as `v1/Pod`, or a group version for all of it."""
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(
        ["go", "run", "-trimpath", "./vectors", *kinds],
        cwd=build.HERE / "kubernetes",
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def main() -> int:
    lines = vectors(*SELECTION) + [line for line in vectors(*EMPTY_SELECTION) if ' empty"' in line[:120]]
    OUTPUT.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} vectors, {OUTPUT.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
