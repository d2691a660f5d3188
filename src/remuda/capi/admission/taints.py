"""Which taints a machine may ask for: not those that the system itself puts on nodes and takes away."""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import FieldError, invalid_value
from remuda.kube.names import qualified_name_problems

from .. import well_known
from .reading import text

_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"


def taint_errors(taints: list[Any], path: str, *, worker: bool) -> list[FieldError]:
    """What is wrong with the taints of a machine; a worker may not pose as a control plane."""
    errors: list[FieldError] = []
    for index, taint in enumerate(taints):
        key = text(taint, "key")
        reserved = _reserved(key)
        problems = ([reserved] if reserved else []) + qualified_name_problems(key)
        errors += [invalid_value(f"{path}[{index}].key", key, why) for why in problems]
    if worker:
        errors += [
            invalid_value(f"{path}[{index}].key", _CONTROL_PLANE_ROLE, "taint is not allowed for worker Machines")
            for index, taint in enumerate(taints)
            if text(taint, "key") == _CONTROL_PLANE_ROLE
        ]
    return errors


def _reserved(key: str) -> str:
    if key in (well_known.UNINITIALIZED_TAINT, well_known.OUTDATED_REVISION_TAINT):
        return "taint key is not allowed"
    if key.startswith("node.kubernetes.io/") and key != _OUT_OF_SERVICE:
        return f"taint key must not have the prefix node.kubernetes.io/, except for {_OUT_OF_SERVICE}"
    if key.startswith("node.cloudprovider.kubernetes.io/"):
        return "taint key must not have the prefix node.cloudprovider.kubernetes.io/"
    if key == "node-role.kubernetes.io/master":
        return "taint is deprecated since 1.24 and should not be used anymore"
    return ""
