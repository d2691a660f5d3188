"""The layout of keys in the store: kube-apiserver's own, so that a real one could be started on the same data.

`/registry/<resource>/<namespace>/<name>` for built-ins, with a few historic exceptions, and
`/registry/<group>/<resource>/…` for custom resources and groups that began as such.
"""

from __future__ import annotations

ROOT = "/registry/"
# Records that servers of one store share; no objects, and ignored by kube-apiserver.
OWN = "/remuda/"

_HISTORIC = {
    ("", "nodes"): "minions",
    ("", "services"): "services/specs",
    ("", "endpoints"): "services/endpoints",
    ("", "replicationcontrollers"): "controllers",
    ("networking.k8s.io", "ingresses"): "ingress",
    ("events.k8s.io", "events"): "events",
}
# Built-in groups that keep their group in the key.
_GROUPED = frozenset(("apiextensions.k8s.io", "apiregistration.k8s.io"))


def prefix_for(group: str, resource: str, builtin: bool) -> str:
    """The bucket of one resource, with its trailing slash."""
    historic = _HISTORIC.get((group, resource))
    if historic is not None and builtin:
        return f"{ROOT}{historic}/"
    if builtin and group not in _GROUPED:
        return f"{ROOT}{resource}/"
    return f"{ROOT}{group}/{resource}/"


def bucket_of(key: str) -> str:
    """The bucket that a key belongs to. A segment with a dot is a group, so the resource comes after it.

    A key that is too short for an object, written by another program, is alone in a bucket that is never read.
    """
    first = key.find("/", len(ROOT)) + 1
    segment = key[len(ROOT) : first - 1]
    if first and ("." in segment or segment == "services"):
        first = key.find("/", first) + 1
    return key[:first] if first else f"{key}/"


def split(key: str, bucket: str) -> tuple[str, str]:
    """Namespace ("" when there is none) and name."""
    namespace, slash, name = key[len(bucket) :].partition("/")
    return (namespace, name) if slash else ("", namespace)
