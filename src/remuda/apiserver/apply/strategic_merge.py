"""Strategic merge patch: the schema of a built-in kind says which lists are merged and by which key.

A patch may also carry directives: `$patch` (delete, replace), `$retainKeys`, `$setElementOrder/<list>` and
`$deleteFromPrimitiveList/<list>`. Results, orders and error texts are apimachinery's. Arguments are not changed, and
unchanged branches are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from remuda.kube.encoding import go_format
from remuda.kube.errors import ApiError, bad_request

from .typed import Resolve, reference

Obj = dict[str, Any]

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_SET_ORDER = "$setElementOrder"
_DELETE_FROM = "$deleteFromPrimitiveList"

BAD_DELETE_LIST = "invalid patch format of primitive list"
BAD_RETAIN_KEYS = "invalid patch format of retainKeys"
BAD_ORDER_LIST = "invalid patch format of setElementOrder list"
LIST_OF_LISTS = "lists of lists are not supported"
_CLIENTS_FAULT = frozenset((BAD_DELETE_LIST, BAD_RETAIN_KEYS, BAD_ORDER_LIST))
_ABSENT: Any = object()


def apply_strategic_patch(original: Obj, patch: Any, schema: Any, resolve: Resolve) -> Obj:
    """`original` with a client's patch applied. Raises ApiError."""
    if not isinstance(patch, dict):
        kind = go_format.json_kind(patch)
        raise bad_request(f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
    try:
        return merge(original, patch, Lookup(schema, resolve))
    except PatchError as error:
        raise as_api_error(error) from None


def as_api_error(error: PatchError) -> ApiError:
    text = str(error)
    if text in _CLIENTS_FAULT:
        return bad_request(text)
    if text == LIST_OF_LISTS:
        return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})
    return ApiError(500, "", text)


def merge(original: Obj, patch: Obj, lookup: Lookup) -> Obj:
    """One object with its patch merged; PatchError when the patch does not fit."""
    if _DIRECTIVE in patch:
        return _directed(patch)
    result = dict(original)
    patch = dict(patch)
    _retain_keys(result, patch)
    _set_orders(result, patch, lookup)
    for key, value in patch.items():
        deletes = key.startswith(_DELETE_FROM)
        if deletes:
            key = _after_slash(key, _DELETE_FROM, BAD_DELETE_LIST) or key
        if value is None:
            result.pop(key, None)
            continue
        current = result.get(key, _ABSENT)
        if current is _ABSENT or go_format.type_name(current) != go_format.type_name(value):
            if not deletes:
                _put(result, key, without_directives(_without_nulls(value)))
        elif type(value) is dict:
            below, meta = lookup.struct(key)
            result[key] = value if meta.strategy == "replace" else merge(current, value, below)
        elif type(value) is list:
            items, meta = lookup.items(key)
            result[key] = _merged_list(current, value, items, meta.strategy, meta.merge_key, deletes)
        else:
            result[key] = value
    return result


def _directed(patch: Obj) -> Obj:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    raise _bad_directive(directive, patch)


def _bad_directive(directive: Any, patch: Obj) -> PatchError:
    return PatchError(f"unknown patch type: {go_format.formatted(directive)} in map: {go_format.shown(patch)}")


def _put(result: Obj, key: str, value: Any) -> None:
    if value is _ABSENT:
        result.pop(key, None)
    else:
        result[key] = value


def _after_slash(key: str, prefix: str, error: str) -> str:
    head, slash, rest = key.partition("/")
    if not slash or head != prefix:
        raise PatchError(error)
    return rest


def _without_nulls(value: Any) -> Any:
    if type(value) is dict:
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if type(value) is list:
        return [_without_nulls(child) for child in value]
    return value


def without_directives(value: Any) -> Any:
    """A value to be taken as a whole, without directives; `_ABSENT` for a directive."""
    if type(value) is dict:
        if _DIRECTIVE in value:
            return _ABSENT
        kept = ((key, without_directives(child)) for key, child in value.items())
        return {key: child for key, child in kept if child is not _ABSENT}
    if type(value) is list:
        items = (without_directives(child) for child in value)
        return [child for child in items if child is not _ABSENT]
    return value


def _retain_keys(result: Obj, patch: Obj) -> None:
    """Drops all keys from `result` that `$retainKeys` does not name."""
    if _RETAIN_KEYS not in patch:
        return
    names = patch.pop(_RETAIN_KEYS)
    if type(names) is not list:
        raise PatchError(BAD_RETAIN_KEYS)
    kept = {name for name in names if isinstance(name, str)}
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE_FROM, _SET_ORDER)) and key not in kept:
            raise PatchError(BAD_RETAIN_KEYS)
    for key in [key for key in result if key not in kept]:
        del result[key]


# ---------------------------------------------------------------------------------------------------------------------
# Lists


def _set_orders(result: Obj, patch: Obj, lookup: Lookup) -> None:
    """Carries out the `$setElementOrder` directives, and with them the merge of their lists."""
    for directive in [key for key in patch if key.startswith(_SET_ORDER)]:
        wanted = _as_list(patch.pop(directive))
        key = _after_slash(directive, _SET_ORDER, BAD_ORDER_LIST)
        current = _as_list(result[key]) if key in result else None
        change = _as_list(patch[key]) if key in patch else None
        items, meta = lookup.items(key)
        _check_order(change or [], wanted, meta.merge_key)
        if current is None and change is None:
            continue
        if change is None:
            assert current is not None
            merged = current
        elif current is None:
            merged = without_directives(change)
        else:
            merged = _merged_list(current, change, items, meta.strategy, meta.merge_key, False)
        maps = _holds_maps(current or [], change or [])
        mine, others = _partitioned(merged, wanted, meta.merge_key)
        live_order = _live_order(current or [], change or [], meta.merge_key) if maps else current or []
        result[key] = _in_order(mine, others, wanted, live_order, meta.merge_key, maps)
        patch.pop(key, None)


def _live_order(current: list[Any], change: list[Any], merge_key: str) -> list[Any]:
    """The live list, with new items in the places of deleted ones.

    apimachinery deletes and appends in place, and so finds them there when it orders the server's items.
    """
    gone = [item.get(merge_key) for item in change if item.get(_DIRECTIVE) == "delete"]
    left = [item for item in current if not any(_has_key(item, merge_key, key) for key in gone)]
    if len(left) == len(current):
        return current
    new = [
        item
        for item in change
        if _DIRECTIVE not in item and not any(_has_key(other, merge_key, item[merge_key]) for other in left)
    ]
    return (left + new)[: len(current)]


def _as_list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise PatchError(f"expected a []interface {{}}, but received a {go_format.type_name(value)}")
    return value


def _as_map(value: Any) -> Obj:
    if type(value) is not dict:
        raise PatchError(f"expected a map[string]interface {{}}, but received a {go_format.type_name(value)}")
    return value


def _key_of(item: Any, merge_key: str) -> Any:
    found = _as_map(item)
    if merge_key not in found:
        raise PatchError(f"map: {go_format.shown(found)} does not contain declared merge key: {merge_key}")
    return found[merge_key]


def _same(left: Any, right: Any) -> bool:
    """Go's comparison of two interfaces; values that Go cannot compare are an error here too."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is dict or kind is list:
        raise PatchError(f"runtime error: comparing uncomparable type {go_format.type_name(left)}")
    return bool(left == right)


def _check_order(change: list[Any], wanted: list[Any], merge_key: str) -> None:
    """Raises unless the patch's items are in the order that it asks for."""
    if not wanted or not change:
        return
    brought = change
    if merge_key:
        brought = [item for item in change if _as_map(item).get(_DIRECTIVE) != "delete"]
    position = 0
    used = 0
    while position < len(brought) and used < len(wanted):
        item = brought[position]
        if type(item) is dict and _DIRECTIVE in item:
            position += 1
            continue
        if merge_key:
            equal = _same(_key_of(item, merge_key), _key_of(wanted[used], merge_key))
        else:
            equal = _same(item, wanted[used])
        position += equal
        used += 1
    if position < len(brought) and used >= len(wanted):
        raise PatchError(
            f"The order in patch list:\n{go_format.shown(change)}\n doesn't match {_SET_ORDER} list:\n{go_format.shown(wanted)}\n"
        )


def _holds_maps(*lists: list[Any]) -> bool:
    """True for lists of objects; raises unless all items have one type."""
    found = ""
    for items in lists:
        for item in items:
            if item is None:
                raise PatchError("list element types are not identical: null")
            kind = go_format.type_name(item)
            if not found:
                found = kind
                if type(item) is list:
                    raise PatchError(LIST_OF_LISTS)
            elif kind != found:
                shown = " ".join(go_format.shown(each) for each in lists)
                raise PatchError(f"list element types are not identical: [{shown}]")
    if not found:
        raise PatchError("no elements in any of the given slices")
    return found.startswith("map")


def _merged_list(current: list[Any], change: list[Any], items: Lookup, strategy: str, merge_key: str, deletes: bool) -> list[Any]:
    if strategy != "merge" and not deletes:
        return change
    if not current and not change:
        return current
    if not _holds_maps(current, change):
        if deletes:
            return [item for item in current if not any(_same(item, gone) for gone in change)]
        merged = _unique([*current, *change])
        mine, others = _partitioned(merged, change, merge_key)
        return _in_order(mine, others, change, current, merge_key, False)
    if not merge_key:
        raise PatchError(f"cannot merge lists without merge key for {items.kind}")
    current, change = _special_items(current, change, merge_key)
    merged = _merged_items(current, change, merge_key, items)
    mine, others = _partitioned(merged, change, merge_key)
    return _in_order(mine, others, change, current, merge_key, True)


def _unique(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not any(_same(item, other) for other in found):
            found.append(item)
    return found


def _special_items(current: list[Any], change: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """Carries out the items that are directives; gives the rest of both lists."""
    plain: list[Any] = []
    replace = False
    for item in change:
        if _DIRECTIVE not in item:
            plain.append(item)
            continue
        directive = item[_DIRECTIVE]
        if directive == "delete":
            gone = _key_of(item, merge_key)
            current = [other for other in current if not _has_key(other, merge_key, gone)]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch")
        else:
            raise _bad_directive(directive, item)
    return (plain, []) if replace else (current, plain)


def _has_key(item: Obj, merge_key: str, value: Any) -> bool:
    return merge_key in item and _same(item[merge_key], value)


def _position(items: list[Any], merge_key: str, value: Any) -> int:
    for index, item in enumerate(items):
        if type(item) is not dict:
            raise PatchError(f"value for key {index} is not a map")
        if _has_key(item, merge_key, value):
            return index
    return -1


def _merged_items(current: list[Any], change: list[Any], merge_key: str, lookup: Lookup) -> list[Any]:
    result = list(current)
    for item in change:
        index = _position(result, merge_key, _key_of(item, merge_key))
        if index < 0:
            result.append(item)
        else:
            result[index] = merge(result[index], item, lookup)
    return result


def _partitioned(items: list[Any], by: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """The items that `by` names too, and the others."""
    mine: list[Any] = []
    others: list[Any] = []
    for item in items:
        if merge_key:
            named = _position(by, merge_key, _key_of(item, merge_key)) >= 0
        else:
            named = any(_same(item, other) for other in by)
        (mine if named else others).append(item)
    return mine, others


def _in_order(mine: list[Any], others: list[Any], wanted: list[Any], current: list[Any], merge_key: str, maps: bool) -> list[Any]:
    """Both lists in their own orders, and the server's items among the patch's where the live order put them."""
    mine = _sorted(mine, wanted, merge_key, maps)
    others = _sorted(others, current, merge_key, maps)
    result: list[Any] = []
    left = right = 0
    while left < len(others) and right < len(mine):
        before = _index(current, others[left], merge_key, maps)
        after = _index(current, mine[right], merge_key, maps)
        if 0 <= before < after:
            result.append(others[left])
            left += 1
        else:
            result.append(mine[right])
            right += 1
    return result + mine[right:] + others[left:]


def _sorted(items: list[Any], order: list[Any], merge_key: str, maps: bool) -> list[Any]:
    last: list[Any] = []
    if maps:
        for item in (*items, *order):
            _key_of(item, merge_key)
        last = [item for item in items if item.get(_DIRECTIVE) == "delete"]
        items = [item for item in items if item.get(_DIRECTIVE) != "delete"]
    ranks = [_index(order, item, merge_key, maps) for item in items]
    if min(ranks, default=0) >= 0:
        return [items[index] for index in sorted(range(len(items)), key=ranks.__getitem__)] + last
    # Items that the order does not name go first, as in apimachinery's comparison.
    result: list[tuple[int, Any]] = []
    for rank, item in zip(ranks, items, strict=True):
        at = len(result)
        while at > 0 and (rank < 0 or result[at - 1][0] < 0 or rank < result[at - 1][0]):
            at -= 1
        result.insert(at, (rank, item))
    return [item for _, item in result] + last


def _index(items: list[Any], item: Any, merge_key: str, maps: bool) -> int:
    wanted = item.get(merge_key) if maps else item
    for index, other in enumerate(items):
        found = (other.get(merge_key) if type(other) is dict else None) if maps else other
        if _same(found, wanted):
            return index
    return -1


# --- patch strategies of a schema -----------------------------------------------------------------------------------------
#
# Patch strategy in a built-in's schema: merge or replace, and the merge key.


class PatchError(Exception):
    """A patch that cannot be applied, in apimachinery's words."""


class PatchMeta(NamedTuple):
    strategy: str
    merge_key: str


class Lookup:
    """A place in a schema."""

    __slots__ = ("_name", "_resolve", "_schema")

    def __init__(self, schema: Mapping[str, Any], resolve: Resolve, name: str = "") -> None:
        name = reference(schema) or name
        self._name = name
        self._resolve = resolve
        self._schema = resolve(reference(schema)) if reference(schema) else schema

    @property
    def kind(self) -> str:
        """Go's name for the kind of this type, as in errors."""
        if self._schema.get("type") == "array":
            return "slice"
        return "struct" if self._schema.get("properties") else "map" if self._is_object else "string"

    @property
    def _is_object(self) -> bool:
        return bool(self._schema.get("type", "object") == "object")

    def struct(self, key: str) -> tuple[Lookup, PatchMeta]:
        """The field `key` of this struct."""
        field = self._field(key)
        return Lookup(field, self._resolve), _meta(field)

    def items(self, key: str) -> tuple[Lookup, PatchMeta]:
        """The items of the list field `key` of this struct."""
        field = self._field(key)
        items = field.get("items")
        if not isinstance(items, Mapping):
            raise PatchError(f"expected slice or array type, but got: {self.kind}")
        return Lookup(items, self._resolve), _meta(field)

    def _field(self, key: str) -> Mapping[str, Any]:
        properties: Mapping[str, Any] | None = self._schema.get("properties")
        if not properties:
            kind = self.kind
            raise PatchError(f"merging an object in json but data type is not struct, instead is: {kind}")
        found: Mapping[str, Any] | None = properties.get(key)
        if found is None:
            folded = key.casefold()
            found = next((field for name, field in properties.items() if name.casefold() == folded), None)
        if found is None:
            name = self._name.rpartition(".")[2]
            raise PatchError(f'unable to find api field in struct {name} for the json field "{key}"')
        return found


def _meta(field: Mapping[str, Any]) -> PatchMeta:
    strategies = str(field.get("x-kubernetes-patch-strategy") or "").split(",")
    if len(strategies) > 2 or (len(strategies) == 2 and "retainKeys" not in strategies):
        raise PatchError(f"unexpected patch strategy: [{' '.join(strategies)}]")
    kept = [strategy for strategy in strategies if strategy != "retainKeys"]
    return PatchMeta(kept[0] if kept else "", str(field.get("x-kubernetes-patch-merge-key") or ""))
