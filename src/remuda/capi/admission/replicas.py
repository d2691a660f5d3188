"""How many machines an object asks for that does not say it.

The autoscaler takes over only once the number is within its bounds, so an object that carries both of its annotations is brought
there; unsetting the field hands a running group over without scaling it down. Everything else gets one machine.
"""

from __future__ import annotations

from remuda.kube.encoding.go_integers import IntegerError, parse_int32
from remuda.kube.errors import ApiError

from .. import well_known
from .reading import Obj, section, whole_number


def default_replicas(kind: str, obj: Obj, old: Obj | None) -> int:
    """For an object without `spec.replicas`; `old` is None when it is new."""
    annotations = section(obj, "metadata", "annotations")
    if well_known.AUTOSCALER_MIN not in annotations or well_known.AUTOSCALER_MAX not in annotations:
        return 1
    low = _bound(kind, annotations, well_known.AUTOSCALER_MIN)
    high = _bound(kind, annotations, well_known.AUTOSCALER_MAX)
    before = whole_number(old, "spec", "replicas")
    if before is None or before < low:
        return low
    return min(before, high)


def _bound(kind: str, annotations: Obj, name: str) -> int:
    try:
        return parse_int32(str(annotations[name]))
    except IntegerError as error:
        # The misspelt word is what clients of upstream see.
        what = f'failed to caculate {kind} replicas value: could not parse the value of the "{name}" annotation'
        raise ApiError(403, "Forbidden", f"{what}: {error}") from None
