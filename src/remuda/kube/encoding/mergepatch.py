"""JSON merge patch as kube-apiserver applies it (`application/merge-patch+json`).

RFC 7386 with one difference that clients can see: where a patch brings a whole new value, nulls are dropped from objects
inside of its lists too. Arguments are not changed, and branches that a patch does not touch are shared with the result.
The other patch without a schema is in :mod:`remuda.kube.encoding.jsonpatch`.
"""

from __future__ import annotations

from typing import Any

from ..errors import bad_request

Obj = dict[str, Any]


def apply_merge_patch(document: Obj, body: Any, lenient: bool = False) -> Obj:
    """A client's patch, decoded from a request's body, applied; an ApiError when it is no object."""
    if isinstance(body, dict):
        return apply(document, body)
    if body is None or lenient:
        raise bad_request("Invalid JSON Patch")
    target = "Go value of type map[string]interface {}"
    raise bad_request(f"error decoding patch: json: cannot unmarshal {json_kind(body)} into {target}")


def json_kind(value: Any) -> str:
    """The name of a JSON value's type in the errors of Go's decoder."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def apply(document: Obj, patch: Obj) -> Obj:
    """`document` with the patch applied; the same object when the patch changes nothing."""
    result: Obj | None = None
    for key, value in patch.items():
        if value is None:
            if key in document:
                result = dict(document) if result is None else result
                del result[key]
            continue
        current = document.get(key)
        if current is None:
            merged = without_nulls(value)
        elif type(current) is dict:
            merged = apply(current, value) if type(value) is dict else value
        else:
            merged = without_nulls(value)
        if merged is not current:
            result = dict(document) if result is None else result
            result[key] = merged
    return document if result is None else result


def without_nulls(value: Any) -> Any:
    """`value` without null members of objects, at any depth; null elements of lists stay."""
    if type(value) is dict:
        return {key: without_nulls(child) for key, child in value.items() if child is not None}
    if type(value) is list:
        return [without_nulls(child) for child in value]
    return value


def create_merge_patch(old: Obj, new: Obj) -> Obj:
    """The smallest merge patch that turns `old` into `new`.

    A merge patch cannot set a null: a null in `new` counts as absent.
    """
    patch: Obj = {}
    for key, value in new.items():
        before = old.get(key)
        if before is value or value is None:
            continue
        if type(before) is dict and type(value) is dict:
            if nested := create_merge_patch(before, value):
                patch[key] = nested
        elif not same_json(before, value):
            patch[key] = value
    for key, before in old.items():
        if before is not None and new.get(key) is None:
            patch[key] = None
    return patch


def same_json(left: Any, right: Any) -> bool:
    """Equality of JSON values; unlike Python's, true is not 1 and 1 is not 1.0."""
    if left is right:
        return True
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is dict:
        if len(left) != len(right):
            return False
        return all(key in right and same_json(value, right[key]) for key, value in left.items())
    if kind is list:
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)
