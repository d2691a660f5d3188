"""The field manager: updates managedFields on every write of an object, and runs server-side apply.

The rules around the updater are kube-apiserver's: fields that the server sets are never owned, a status update owns no
spec, there are at most ten updaters, an object without managedFields gets them on create or with its first apply only, and
an entry's time moves when its owner changed something. Given objects are not changed; results share unchanged parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from remuda.kube.clock import Clock, rfc3339
from remuda.kube.encoding.jsonio import JsonError, dumps_sorted, loads
from remuda.kube.errors import ApiError, bad_request
from remuda.kube.objects import GroupVersion

from .compare import compare, to_fieldset
from .field_set import Fields, difference, has, of_paths, union
from .managed_fields import APPLY, UPDATE, ManagedFieldsError, Owner, OwnerKey, Owners, capped, decode, encode, is_reset, read
from .typed import Resolve, Type, TypedError, compile_type, validate
from .updater import ApplyError, Conflicts, Updater

Obj = dict[str, Any]
Convert = Callable[[Obj, str], Obj | None]

BEFORE_FIRST_APPLY = "before-first-apply"

# Fields that the server sets: they have no owner.
STRIPPED = of_paths(
    [
        ("apiVersion",),
        ("kind",),
        ("metadata",),
        *(
            ("metadata", name)
            for name in (
                "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
                "resourceVersion",
            )
        ),
    ]
)  # fmt: skip


class FieldManager:
    """managedFields of one kind in one version.

    schema:        its OpenAPI schema (`resolve` follows references), or None for objects of unknown shape.
    reset_fields:  per subresource ("" for the object itself) the paths that a write there cannot change.
    empty:         an object of the kind before any field is set; built-ins have fields that are always there.
    versions:      schemas of the other versions, by apiVersion; `convert(obj, api_version)` converts objects to them.
    """

    def __init__(
        self,
        schema: Mapping[str, Any] | None,
        resolve: Resolve | None,
        *,
        group: str,
        version: str,
        kind: str,
        reset_fields: Mapping[str, Iterable[Sequence[str]]] | None = None,
        clock: Clock,
        empty: Obj | None = None,
        versions: Mapping[str, Mapping[str, Any] | None] | None = None,
        convert: Convert | None = None,
    ) -> None:
        self._group, self._version, self._kind = group, version, kind
        self._api_version = f"{group}/{version}" if group else version
        self._clock = clock
        self._resolve = resolve
        self._schema = schema
        self._compiled: Type | None = None
        self._built: Updater | None = None
        self._schemas = versions or {}
        self._types: dict[str, Type] = {}
        self._convert = convert
        self._reset = {name: of_paths(paths) for name, paths in (reset_fields or {}).items()}
        self._empty: Obj = {**(empty or {}), "apiVersion": self._api_version, "kind": kind}

    @property
    def type(self) -> Type:
        if self._compiled is None:
            self._compiled = compile_type(self._schema, self._resolve)
        return self._compiled

    @property
    def _updater(self) -> Updater:
        if self._built is None:
            self._built = Updater(self.type, self._api_version, self._in_version)
        return self._built

    # --- update -----------------------------------------------------------------------------------------------------------

    def on_create(self, new: Obj, manager: str, subresource: str = "") -> Obj:
        """`new` with its first managedFields."""
        given, rest = _taken_apart(new)
        owners = self._given_owners(None, given, subresource)
        return self._updated(self._empty, rest, owners, manager, subresource, None)

    def on_update(self, live: Obj, new: Obj, manager: str, subresource: str = "") -> Obj:
        """`new` with managedFields that record this update's changes; those of `live` when it changed nothing."""
        entries, before = _taken_apart(live)
        given, rest = _taken_apart(new)
        owners = self._given_owners(entries, given, subresource)
        if not owners:
            return rest
        return self._updated(before, rest, owners, manager, subresource, entries)

    def _given_owners(self, live: Any, given: Any, subresource: str) -> Owners:
        """The owners to start from: those in the request when it has valid ones, else those of the live object."""
        if not subresource and given is not None and given is not live and given != live:
            if is_reset(given):
                return {}
            try:
                owners = decode(given)
            except ManagedFieldsError:
                owners = {}
            if owners:
                return owners
        return _read_or_nothing(live)

    def _updated(self, live: Obj, new: Obj, owners: Owners, manager: str, subresource: str, entries: list[Obj] | None) -> Obj:
        try:
            changed = self._with_update(live, new, owners, manager, subresource)
        except (TypedError, ApplyError):
            # As upstream: managedFields that cannot be computed are left out; validation checks the rest.
            return new
        return _put_together(new, _encoded(changed, entries))

    def _with_update(self, live: Obj, new: Obj, owners: Owners, manager: str, subresource: str) -> Owners:
        written, rest = self._updater.update(live, new, owners, self._reset.get(subresource, {}))
        mine = difference(written, STRIPPED)
        if mine:
            key = OwnerKey.of(manager, UPDATE, self._api_version, subresource)
            before = rest.get(key)
            fields = mine if before is None else union(before.fields, mine)
            rest = {**rest, key: Owner(fields, self._api_version, False, self._now())}
        return capped(rest, union) if len(rest) > 10 else rest

    def keep_times(self, live: Obj, new: Obj) -> Obj:
        """`new` with the times of `live` when only times differ: that must not count as a change."""
        ours, theirs = (_entries_of(obj) for obj in (live, new))
        if ours is theirs or not ours or not theirs or len(ours) != len(theirs):
            return new
        if ours == theirs:
            return new
        # Entries are sorted by time, so a new time may also change an entry's place.
        left = [{**each, "time": None} for each in ours]
        for after in theirs:
            timeless = {**after, "time": None}
            if timeless not in left:
                return new
            left.remove(timeless)
        if _taken_apart(live)[1] != _taken_apart(new)[1]:
            return new
        return _put_together(_taken_apart(new)[1], ours)

    # --- apply ------------------------------------------------------------------------------------------------------------

    def on_apply(self, live: Obj | None, config: Obj, manager: str, force: bool = False, subresource: str = "") -> Obj:
        """The live object (None: it does not exist) with the configuration applied. Raises ApiError."""
        self.check_config(config)
        entries, before = _taken_apart(live) if live is not None else (None, self._empty)
        owners = _read_live(entries)
        if not owners and live is not None:
            owners = self._before_first_apply(before, subresource)
        try:
            merged, changed = self._applied(before, config, owners, manager, force, subresource)
        except Conflicts as conflicts:
            raise conflicts.error() from None
        except ApplyError as error:
            raise ApiError(500, "", str(error)) from None
        if manager == KUBECTL:
            merged = with_annotation_of(merged, config)
        return _put_together(merged, _encoded(changed, entries))

    def check_config(self, config: Obj) -> None:
        """Rejects a configuration of another kind, or one with managedFields."""
        version, kind = config.get("apiVersion"), config.get("kind")
        if version != self._api_version or kind != self._kind:
            raise bad_request(f"invalid object type: {shown_kind(config)}")
        metadata = config.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("managedFields"), list):
            raise bad_request("metadata.managedFields must be nil")

    def _before_first_apply(self, live: Obj, subresource: str) -> Owners:
        try:
            return self._with_update(self._empty, live, {}, BEFORE_FIRST_APPLY, subresource)
        except TypedError as error:
            failure = f"failed to convert new object ({self._shown(live)}) to smd typed: {error}"
            raise ApiError(500, "", f"failed to create manager for existing fields: {failure}") from None

    def _applied(self, live: Obj, config: Obj, owners: Owners, manager: str, force: bool, subresource: str) -> tuple[Obj, Owners]:
        self._check_types(live, config)
        key = OwnerKey.of(manager, APPLY, self._api_version, subresource)
        ignored = self._reset.get(subresource, {})
        try:
            merged, changed = self._updater.apply(live, config, key, owners, ignored, force)
        except Conflicts as conflicts:
            if manager != KUBECTL:
                raise
            allowed = allowed_conflicts(self.type, live, self._api_version)
            if allowed is None:
                raise
            left = conflicts.without(lambda path: has(allowed, path))
            if left:
                raise Conflicts(left) from None
            merged, changed = self._updater.apply(live, config, key, owners, ignored, True)
        mine = changed.get(key)
        if mine is not None:
            fields = difference(mine.fields, STRIPPED)
            if fields:
                time = mine.time if merged is None else self._now()
                changed[key] = Owner(fields, mine.api_version, True, time)
            else:
                del changed[key]
        return (live if merged is None else merged), changed

    def _check_types(self, live: Obj, config: Obj) -> None:
        try:
            validate(self.type, config)
        except TypedError as error:
            text = f"failed to create typed patch object ({self._shown(config)}): {error}"
            raise ApiError(500, "", text) from None
        try:
            validate(self.type, live, allow_duplicates=True)
        except TypedError as error:
            text = f"failed to create typed live object ({self._shown(live)}): {error}"
            raise ApiError(500, "", text) from None

    def _shown(self, obj: Obj) -> str:
        metadata = obj.get("metadata")
        names = metadata if isinstance(metadata, dict) else {}
        return f"{names.get('namespace') or ''}/{names.get('name') or ''}; {shown_kind(obj)}"

    # --- versions ---------------------------------------------------------------------------------------------------------

    def _in_version(self, obj: Obj, api_version: str) -> tuple[Type, Obj] | None:
        if obj.get("apiVersion") == api_version:
            found = self._type_of(api_version)
            return None if found is None else (found, obj)
        type_ = self._type_of(api_version)
        if type_ is None or self._convert is None:
            return None
        converted = self._convert(obj, api_version)
        return None if converted is None else (type_, converted)

    def _type_of(self, api_version: str) -> Type | None:
        if api_version == self._api_version:
            return self.type
        if api_version.count("/") > 1:
            raise TypedError([("", f"unexpected GroupVersion string: {api_version}")])
        if api_version not in self._schemas:
            return None
        if api_version not in self._types:
            self._types[api_version] = compile_type(self._schemas[api_version], self._resolve)
        return self._types[api_version]

    def _now(self) -> str:
        return rfc3339(self._clock.time())


def shown_kind(obj: Obj) -> str:
    """An object's kind as Go prints a GroupVersionKind."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    version = version if isinstance(version, str) else ""
    if version.count("/") > 1:
        return "/, Kind="
    group, name = GroupVersion.parse(version)
    return f"{group}/{name}, Kind={kind if isinstance(kind, str) else ''}"


def _entries_of(obj: Obj) -> Any:
    metadata = obj.get("metadata")
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def _taken_apart(obj: Obj) -> tuple[Any, Obj]:
    """An object's managedFields, and the object without them."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return None, obj
    rest = metadata.copy()
    entries = rest.pop("managedFields")
    result = obj.copy()
    result["metadata"] = rest
    return entries, result


def _put_together(obj: Obj, entries: list[Obj] | None) -> Obj:
    metadata = obj.get("metadata", {})
    if not entries or not isinstance(metadata, dict):
        return obj
    result = obj.copy()
    result["metadata"] = {**metadata, "managedFields": entries}
    return result


def _encoded(owners: Owners, entries: Any) -> list[Obj]:
    """The entries; the same list as before when nothing in it has changed."""
    encoded = encode(owners)
    return entries if entries is not None and encoded == entries else encoded


def _read_live(entries: Any) -> Owners:
    if not entries:
        return {}
    try:
        return read(entries)
    except (KeyError, TypeError, AttributeError):
        pass
    try:
        return decode(entries)
    except ManagedFieldsError as error:
        raise ApiError(500, "", f"failed to decode managed fields: {error}") from None


def _read_or_nothing(entries: Any) -> Owners:
    if not entries:
        return {}
    try:
        return read(entries)
    except (KeyError, TypeError, AttributeError):
        return {}


# --- client-side apply's annotation ---------------------------------------------------------------------------------------
#
# The annotation that client-side `kubectl apply` keeps its last configuration in, and how server-side apply treats it.
#
# A user who moves from client-side to server-side apply must not get conflicts on fields that client-side apply had set:
# fields that still have the annotation's value may be taken. While the annotation exists, server-side `kubectl apply` keeps
# it current, so that moving back works. Only for the manager named `kubectl`.


ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"
# The maximum size of all annotations of an object together, in bytes.
MAX_ANNOTATIONS = 256 * 1024
_ESCAPES = {b"<": b"\\u003c", b">": b"\\u003e", b"&": b"\\u0026"}


def allowed_conflicts(type_: Type, live: Obj, api_version: str) -> Fields | None:
    """The fields of the last client-side configuration that are unchanged since; None without such a configuration."""
    text = _annotations(live).get(ANNOTATION)
    if not isinstance(text, str) or not text:
        return None
    try:
        last = loads(text)
    except JsonError:
        return None
    if not isinstance(last, dict) or last.get("apiVersion") != api_version or not last.get("kind"):
        return None
    try:
        validate(type_, live)
        validate(type_, last)
        fields = to_fieldset(type_, last)
        change = compare(type_, last, live)
    except TypedError:
        return None
    return difference(difference(difference(fields, change.modified), change.added), change.removed)


def with_annotation_of(obj: Obj, config: Obj) -> Obj:
    """`obj` with its annotation, if it has one, set to `config`; without it when it would be too large."""
    annotations = _annotations(obj)
    if not annotations.get(ANNOTATION):
        return obj
    updated = {**annotations, ANNOTATION: _encoded_configuration(config)}
    if sum(len(str(key).encode()) + len(str(value).encode()) for key, value in updated.items()) > MAX_ANNOTATIONS:
        del updated[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": updated}}


def _encoded_configuration(config: Obj) -> str:
    """The configuration without the annotation itself, as Go's encoder writes it."""
    annotations = _annotations(config)
    if annotations:
        rest = {name: value for name, value in annotations.items() if name != ANNOTATION}
        config = {**config, "metadata": {**config["metadata"], "annotations": rest}}
    data = dumps_sorted(config)
    for char, escape in _ESCAPES.items():
        data = data.replace(char, escape)
    return data.decode() + "\n"


def _annotations(obj: Obj) -> dict[str, Any]:
    metadata = obj.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
