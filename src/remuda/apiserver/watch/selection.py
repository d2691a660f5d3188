"""The selection of a list or a watch: namespace, label selector, field selector, checked against the resource."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.kube import errors
from remuda.kube.clock import yield_to_loop
from remuda.kube.errors import go_quote
from remuda.kube.selectors import EVERY_FIELD, EVERYTHING, FieldSelector, LabelSelector, SelectorError, parse_fields, parse_labels

from ..cache.entries import Entry
from ..registry.resources import Version
from .filtered_list import VisiblePart

# Entries of a large list to process in one go.
SLICE = 500

_ALWAYS = frozenset(("metadata.name", "metadata.namespace"))
# Kinds with their own error text for unsupported field selectors; all others share one text.
_PLAINLY_REFUSED = frozenset(
    (
        ("", "Event"),
        ("", "Namespace"),
        ("", "Node"),
        ("", "Pod"),
        ("", "ReplicationController"),
        ("", "Secret"),
        ("", "Service"),
        ("events.k8s.io", "Event"),
    )
)


@dataclass(frozen=True, slots=True)
class Selection:
    """`name` is set when a field selector pins metadata.name, which makes most lists a single look-up."""

    version: Version
    namespace: str
    labels: LabelSelector = EVERYTHING
    fields: FieldSelector = EVERY_FIELD
    name: str = ""
    # It selects by fields besides name and namespace, so objects are decoded, in the caller's version.
    by_content: bool = False
    # The caller may see only these.
    only: VisiblePart | None = None

    @property
    def trivial(self) -> bool:
        """Only the namespace (or the whole resource) is selected."""
        return self.labels.empty and self.fields.empty and self.only is None

    def matches(self, entry: Entry) -> bool:
        return (self.only is None or self.only.sees(entry.namespace, entry.name)) and self.asks_for(entry)

    def asks_for(self, entry: Entry) -> bool:
        """True if it is selected, regardless of the caller's rights."""
        if self.name and entry.name != self.name:
            return False
        if not self.labels.empty and not self.labels.matches(entry.labels):
            return False
        return self.fields.empty or self.fields.matches(self._fields_of(entry))

    async def choose(self, candidates: list[Entry], limit: int = 0) -> tuple[list[Entry], int]:
        """Those of `candidates` (a bucket's snapshot) that match, up to `limit`, and the number of examined ones.

        In slices, so that a large list does not delay other tasks; entries never change, so the result is still that of
        the moment when the snapshot was taken.
        """
        version = self.version
        fresh = version.resource.bucket.fresh
        if self.by_content:
            await version.prepare([fresh(entry) for entry in candidates])
        chosen: list[Entry] = []
        trivial = self.trivial
        for looked, entry in enumerate(candidates, 1):
            fresh(entry)
            if trivial or self.matches(entry):
                chosen.append(entry)
                if len(chosen) == limit:
                    return chosen, looked
            if not looked % SLICE:
                await yield_to_loop()
        return chosen, len(candidates)

    def _fields_of(self, entry: Entry) -> dict[str, str]:
        version = self.version
        if entry.fields is not None and entry.fields[0] is version:
            return entry.fields[1]
        # Only the kind's own fields need the object; one to be converted must have been prepared.
        found = dict(version.strategy.fields(version.object(entry))) if self.by_content else {}
        found["metadata.name"] = entry.name
        found["metadata.namespace"] = entry.namespace
        if self.by_content:
            entry.fields = version, found
        return found


def select(
    version: Version, namespace: str, labels: str, fields: str, name: str = "", only: VisiblePart | None = None
) -> Selection:
    """Parse and check both selectors; `name` adds metadata.name=name (a watch on one object)."""
    try:
        label_selector = parse_labels(labels) if labels else EVERYTHING
    except SelectorError as error:
        raise errors.bad_request(str(error)) from None
    try:
        field_selector = parse_fields(fields) if fields else EVERY_FIELD
    except SelectorError as error:
        raise errors.bad_request(str(error)) from None
    for requirement in field_selector.requirements:
        if requirement.field not in _ALWAYS and requirement.field not in version.strategy.field_names:
            raise errors.bad_request(_unknown_field(version, requirement.field))
    pinned = name or field_selector.exact("metadata.name") or ""
    if name:
        exact = field_selector.exact("metadata.name")
        if exact is not None and exact != name:
            raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
    by_content = any(requirement.field not in _ALWAYS for requirement in field_selector.requirements)
    return Selection(version, namespace, label_selector, field_selector, pinned, by_content, only)


def _unknown_field(version: Version, field: str) -> str:
    """Some built-in kinds have their own message for it."""
    kind = (version.group, version.kind)
    if not version.resource.builtin or kind in _PLAINLY_REFUSED:
        return f"field label not supported: {field}"
    if kind == ("batch", "Job"):
        return f"field label {go_quote(field)} not supported for Job"
    return f'{go_quote(field)} is not a known field selector: only "metadata.name", "metadata.namespace"'
