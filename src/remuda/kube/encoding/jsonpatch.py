"""JSON patch (RFC 6902) as kube-apiserver applies it, and the patch between two values.

The library behind kube-apiserver departs from the RFC in places that clients rely on: `replace` sets an absent member,
negative indices count from the end, an `add` without a value adds null, and `test` of an absent member against null
succeeds. Error texts are the library's, too: a webhook's author reads them. Arguments are not changed; untouched branches are
shared. The other patch is :mod:`remuda.kube.encoding.mergepatch`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import ApiError, bad_request, go_quote, too_large
from .jsonio import copy, dumps
from .mergepatch import json_kind, same_json

Obj = dict[str, Any]

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
FIELDS = frozenset(("op", "path", "from", "value"))
_STRINGS = ("op", "path", "from")
_INDEX = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_MISSING = "missing value"
_ABSENT: Any = object()


class JsonPatchError(Exception):
    """A patch that cannot be applied to this document; the text names the operation and the reason."""


def decode(value: Any, lenient: bool = False) -> list[Obj]:
    """The operations in a request's decoded body; an ApiError when it is no patch, or too long.

    `lenient` is for `fieldValidation=Ignore`, which checks wrongly typed members only when they are used.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        kind = "jsonpatch.Patch" if lenient else "[]handlers.jsonPatchOp"
        raise _undecodable(f"json: cannot unmarshal {json_kind(value)} into Go value of type {kind}", lenient)
    for operation in value:
        if operation is None:
            continue
        if not isinstance(operation, dict):
            kind = "jsonpatch.Operation" if lenient else "handlers.jsonPatchOp"
            raise _undecodable(f"json: cannot unmarshal {json_kind(operation)} into Go value of type {kind}", lenient)
        if not lenient:
            _check_members(operation)
    if len(value) > MAX_OPERATIONS:
        limit = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(value)}"
        raise too_large(limit)
    return [operation or {} for operation in value]


def _check_members(operation: Obj) -> None:
    for name in _STRINGS:
        given = operation.get(name)
        if given is not None and not isinstance(given, str):
            field = f"Go struct field jsonPatchOp.{name} of type string"
            raise _undecodable(f"json: cannot unmarshal {json_kind(given)} into {field}", False)


def _undecodable(detail: str, lenient: bool) -> ApiError:
    return bad_request(detail if lenient else f"error decoding patch: {detail}")


def refused() -> ApiError:
    """The answer to a patch that does not apply, regardless of the cause."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def apply_patch(document: Obj, body: Any, lenient: bool = False) -> Any:
    """A client's patch, decoded from a request's body, applied; an ApiError when it is no patch or does not apply."""
    operations = decode(body, lenient)
    try:
        return apply(document, operations)
    except JsonPatchError:
        raise refused() from None


def apply(document: Any, operations: Sequence[Obj]) -> Any:
    """`document` after all operations; JsonPatchError when one of them does not apply."""
    return _Application(document).run(operations)


class _Application:
    """One run over a document. `_own` holds the containers made by this run; only these may be changed in place."""

    def __init__(self, document: Any) -> None:
        self._root = document
        self._own: dict[int, Any] = {}
        self._copied = 0

    def run(self, operations: Sequence[Obj]) -> Any:
        for operation in operations:
            kind = operation.get("op")
            perform = _OPERATIONS.get(kind) if isinstance(kind, str) else None
            if perform is None:
                raise JsonPatchError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
            perform(self, operation)
        return self._root

    def add(self, operation: Obj) -> None:
        path = _pointer(operation, "path", "add", _MISSING)
        container, key = self._find(path, write=True)
        if container is None:
            raise JsonPatchError(f'add operation does not apply: doc is missing path: "{path}": {_MISSING}')
        _guard(f"error in add for path: '{path}'", _insert, container, key, operation.get("value"))

    def remove(self, operation: Obj) -> None:
        path = _pointer(operation, "path", "remove", _MISSING)
        container, key = self._find(path, write=True)
        if container is None:
            raise JsonPatchError(f'remove operation does not apply: doc is missing path: "{path}": {_MISSING}')
        _guard(f"error in remove for path: '{path}'", _delete, container, key)

    def replace(self, operation: Obj) -> None:
        path = _pointer(operation, "path", "replace")
        value = operation.get("value")
        if path == "":
            if not isinstance(value, dict | list):
                raise JsonPatchError("replace operation value must be object or array: %!w(<nil>)")
            self._root = value
            return
        container, key = self._find(path, write=True)
        if container is None:
            raise JsonPatchError(f"replace operation does not apply: doc is missing path: {path}: {_MISSING}")
        if isinstance(container, dict):
            container[key] = value
            return
        index = _resolved(key, len(container))
        if isinstance(index, str):
            raise JsonPatchError(f"replace operation does not apply: doc is missing key: {path}: {_MISSING}")
        container[index] = value

    def move(self, operation: Obj) -> None:
        source = _pointer(operation, "from", "move")
        container, key = self._find(source, write=True)
        if container is None:
            raise JsonPatchError(f"move operation does not apply: doc is missing from path: {source}: {_MISSING}")
        value = _guard(f"error in move for path: '{key}'", _get, container, key)
        _guard(f"error in move for path: '{key}'", _delete, container, key)
        path = _pointer(operation, "path", "move")
        target, name = self._find(path, write=True)
        if target is None:
            raise JsonPatchError(f"move operation does not apply: doc is missing destination path: {path}: {_MISSING}")
        _guard(f"error in move for path: '{path}'", _insert, target, name, None if value is _ABSENT else value)

    def copy(self, operation: Obj) -> None:
        source = _pointer(operation, "from", "copy")
        container, key = self._find(source, write=False)
        if container is None:
            raise JsonPatchError(f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}")
        value = _guard(f"error in copy for from: '{source}'", _get, container, key)
        path = _pointer(operation, "path", "copy", _MISSING)
        target, name = self._find(path, write=True)
        if target is None:
            raise JsonPatchError(f"copy operation does not apply: doc is missing destination path: {path}: {_MISSING}")
        value = None if value is _ABSENT else value
        self._account(value)
        # A real copy, which the limit keeps cheap: a shared container would no longer be this run's alone.
        _guard("error while adding value during copy", _insert, target, name, copy(value))

    def _account(self, value: Any) -> None:
        """Limits the size: a patch of copies of copies would explode."""
        if value is None:
            return
        self._copied += len(dumps(value))
        if self._copied > MAX_COPIED_BYTES:
            raise JsonPatchError(
                "Unable to complete the copy, the accumulated size increase of copy is "
                f"{self._copied}, exceeding the limit {MAX_COPIED_BYTES}"
            )

    def test(self, operation: Obj) -> None:
        path = _pointer(operation, "path", "test")
        expected = operation.get("value")
        if path == "":
            found = self._root
        else:
            container, key = self._find(path, write=False)
            if container is None:
                raise JsonPatchError(f"test operation does not apply: is missing path: {path}: {_MISSING}")
            found = _guard(f"error in test for path: '{path}'", _get, container, key)
        if not same_json(None if found is _ABSENT else found, expected):
            raise JsonPatchError(f"testing value {path} failed: test failed")

    def _find(self, path: str, write: bool) -> tuple[Any, str]:
        """The container that `path` ends in and the key in it; (None, "") when there is none.

        For a write, every container on the way is made this run's own.
        """
        parts = path.split("/")
        if len(parts) < 2 or not isinstance(self._root, dict | list):
            return None, ""
        if write:
            self._root = self._owned(self._root)
        container: Any = self._root
        for part in parts[1:-1]:
            key: Any = _decoded(part)
            if isinstance(container, dict):
                child = container.get(key)
            else:
                key = _resolved(key, len(container))
                if isinstance(key, str):
                    return None, ""
                child = container[key]
            if not isinstance(child, dict | list):
                return None, ""
            if write:
                owned = self._owned(child)
                if owned is not child:
                    container[key] = child = owned
            container = child
        return container, _decoded(parts[-1])

    def _owned(self, container: Any) -> Any:
        if id(container) in self._own:
            return container
        made = container.copy()
        self._own[id(made)] = made
        return made


_OPERATIONS = {
    "add": _Application.add,
    "remove": _Application.remove,
    "replace": _Application.replace,
    "move": _Application.move,
    "copy": _Application.copy,
    "test": _Application.test,
}


class _Refusal(Exception):
    """The reason why a key of a container cannot be used."""


def _guard(context: str, perform: Any, *arguments: Any) -> Any:
    try:
        return perform(*arguments)
    except _Refusal as refusal:
        raise JsonPatchError(f"{context}: {refusal}") from None


def _pointer(operation: Obj, name: str, kind: str, reason: str = "") -> str:
    given = operation.get(name)
    if isinstance(given, str):
        return given
    if reason:
        pass
    elif given is None:
        reason = f"operation{',' if name == 'from' else ''} missing {name} field: {_MISSING}"
    else:
        reason = f"json: cannot unmarshal {json_kind(given)} into Go value of type string"
    raise JsonPatchError(f"{kind} operation failed to decode {name}: {reason}")


def _decoded(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~") if "~" in part else part


def _resolved(key: str, size: int) -> int | str:
    """The index that `key` names in a list of `size`, or the error text."""
    if _INDEX.fullmatch(key) is None:
        return f"strconv.Atoi: parsing {go_quote(key)}: invalid syntax"
    index = int(key)
    if not -size <= index < size:
        return f"Unable to access invalid index: {index}: invalid index referenced"
    return index + size if index < 0 else index


def _get(container: Any, key: str) -> Any:
    if isinstance(container, dict):
        return container.get(key, _ABSENT)
    index = _resolved(key, len(container))
    if isinstance(index, str):
        raise _Refusal(index)
    return container[index]


def _insert(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        index = _resolved(key, len(container) + 1)
        if isinstance(index, str):
            prefix = f"value was not a proper array index: '{key}': " if index.startswith("strconv") else ""
            raise _Refusal(prefix + index)
        container.insert(index, value)


def _delete(container: Any, key: str) -> None:
    if isinstance(container, dict):
        if key not in container:
            raise _Refusal(f"Unable to remove nonexistent key: {key}: {_MISSING}")
        del container[key]
        return
    index = _resolved(key, len(container))
    if isinstance(index, str):
        raise _Refusal(index)
    del container[index]


# ---------------------------------------------------------------------------------------------------------------------


def diff(old: Any, new: Any) -> list[Obj]:
    """Operations that turn `old` into `new`: members one by one, lists by their common ends."""
    operations: list[Obj] = []
    if type(old) is type(new) and isinstance(new, dict | list):
        _diff(old, new, "", operations)
    elif not same_json(old, new):
        operations.append({"op": "replace", "path": "", "value": new})
    return operations


def _diff(old: Any, new: Any, path: str, operations: list[Obj]) -> None:
    if old is new:
        return
    if type(old) is dict and type(new) is dict:
        _diff_objects(old, new, path, operations)
    elif type(old) is list and type(new) is list:
        _diff_lists(old, new, path, operations)
    elif not same_json(old, new):
        operations.append({"op": "replace", "path": path, "value": new})


def _diff_objects(old: Obj, new: Obj, path: str, operations: list[Obj]) -> None:
    for key in old:
        if key not in new:
            operations.append({"op": "remove", "path": f"{path}/{_encoded(key)}"})
    for key, value in new.items():
        child = f"{path}/{_encoded(key)}"
        if key in old:
            _diff(old[key], value, child, operations)
        else:
            operations.append({"op": "add", "path": child, "value": value})


def _diff_lists(old: list[Any], new: list[Any], path: str, operations: list[Obj]) -> None:
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and same_json(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same_json(old[-1 - tail], new[-1 - tail]):
        tail += 1
    common = shorter - head - tail
    for index in range(head, head + common):
        _diff(old[index], new[index], f"{path}/{index}", operations)
    for index in range(len(old) - tail - 1, head + common - 1, -1):
        operations.append({"op": "remove", "path": f"{path}/{index}"})
    for index in range(head + common, len(new) - tail):
        operations.append({"op": "add", "path": f"{path}/{index}", "value": new[index]})


def _encoded(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
