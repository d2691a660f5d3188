"""Values that break things: the ends of number ranges, odd texts, names that mean something to somebody."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

words = st.sampled_from(
    [
        "metadata", "name", "namespace", "spec", "data", "labels", "annotations", "managedFields", "finalizers", "status",
        "containers", "image", "ownerReferences", "$patch", "$retainKeys", "$setElementOrder/containers", "replace", "delete",
        "template", "selector", "matchLabels", "shoes", "leg", "legs", "colour", "kind", "apiVersion", "ConfigMap", "v1", "uid",
        "resourceVersion", "creationTimestamp", "generation", "$deleteFromPrimitiveList/finalizers", "op", "path", "value", "/",
        "2020-01-01T00:00:00Z", "f:spec", "k:{\"name\":\"x\"}", "fieldsV1", "manager", "operation", "Apply", "time", "ports", "",
    ]
)  # fmt: skip
numbers = st.one_of(
    st.sampled_from([0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 0.1, -0.0, 1e308, 1e-320, 1.5]),
    st.integers(),
)
odd = st.sampled_from(["\x00", "é", "\U0001f40e", "a" * 300, "\u2028", "%", "{}", "-", "\ud800"])
texts = st.one_of(words, st.text(max_size=20), odd.filter(lambda text: text != "\ud800"))


def shaped(keys: st.SearchStrategy[str], leaves: int = 15) -> st.SearchStrategy[Any]:
    """JSON of any shape whose members have these names."""
    return st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, texts),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
        max_leaves=leaves,
    )


values = shaped(texts)
objects = st.dictionaries(texts, values, max_size=6)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def mangled(good: bytes) -> st.SearchStrategy[bytes]:
    """Something that was right once: cut, with bytes changed, doubled, with noise within."""

    def mangle(edits: list[tuple[int, int, bytes]]) -> bytes:
        data = bytearray(good)
        for at, length, put in edits:
            at %= len(data) + 1
            data[at : at + length] = put
        return bytes(data)

    edit = st.tuples(st.integers(0, max(len(good), 1)), st.sampled_from([0, 1, 1, 2, 8, 1 << 20]), st.binary(max_size=6))
    return st.lists(edit, max_size=4).map(mangle)


@st.composite
def changed(draw: st.DrawFn, good: Any, oddities: st.SearchStrategy[Any]) -> Any:
    """Right but for a few places, where something odd is or nothing at all."""
    value = json.loads(json.dumps(good))
    for _ in range(draw(st.integers(0, 3))):
        at = value
        while isinstance(at, dict | list) and at:
            name: Any = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if isinstance(at[name], dict | list) and at[name] and draw(st.integers(0, 3)):
                at = at[name]
                continue
            if draw(st.integers(0, 4)):
                # A copy: what is drawn may be drawn again, and be changed in the meantime.
                at[name] = json.loads(json.dumps(draw(oddities)))
            else:
                del at[name]
            break
    return value
