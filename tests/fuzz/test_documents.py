"""JSON, YAML and protobuf as they come: a value or the one error that each reader has."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.agent import yamlsubset
from remuda.agent.errors import ConfigError
from remuda.apiserver.scheme import protobuf
from remuda.apiserver.scheme.protobuf import ProtobufError
from remuda.kube.encoding import jsonio, jsonsyntax, yamlio
from tests.unit.apiserver.scheme.test_protobuf import VECTORS

from .budget import fuzzing
from .shapes import encoded, mangled, values

FUZZ = fuzzing(200)

pieces = st.lists(
    st.sampled_from(
        [
            "{", "}", "[", "]", ":", ",", '"a"', '"b"', '"\\ud800"', '"\\u0000"', "1", "-0", "1e999", "1E-9", "9" * 5000,
            "0.1e+3", "true", "null", "nul", "NaN", "-", " ", "\n", "\ufeff", "é", '"', "\\", "01", "1.", "/*", "//", "\x00",
            "-Infinity", '"a":', "\ud800",
        ]
    ),
    max_size=14,
).map(lambda found: "".join(found).encode("utf-8", "surrogatepass"))  # fmt: skip
documents = st.one_of(pieces, st.binary(max_size=60), values.map(encoded), values.map(encoded).flatmap(mangled))


@FUZZ
@given(documents, st.booleans())
@example(b'{"a":' + b"9" * 5000 + b',"a":1}', False)
@example(b'{"a":1,"a":' + b"9" * 400 + b"}", True)
@example(b'{"a":"\xff","b":' + b"9" * 5000 + b"}", False)
def test_json(data: bytes, merge: bool) -> None:
    jsonio.depth_exceeds(data)
    problem = jsonsyntax.problem(data)
    try:
        value, _ = jsonio.loads_as_go(data, merge)
    except jsonio.JsonError as error:
        assert str(error)
    else:
        assert problem == ""
        assert jsonio.loads(jsonio.dumps(value)) == value
    try:
        jsonio.loads(data)
    except jsonio.JsonError as error:
        assert str(error)
    else:
        assert problem == ""


lines = st.lists(
    st.sampled_from(
        [
            "a: b", "a:", "- a", "  - b", "  c: d", "---", "...", "? a", ": b", "&x a", "*x", "a: &x [1]", "b: *x", "<<: *x",
            "<<: 1", "!!int x", "a: !!binary eA==", "a: !!timestamp 2001-01-01", "a: 2001-01-01", "a: 0o8", "a: 0x_",
            "a: 1_000", "a: .nan", "a: -.inf", "a: 190:20:30", "a: |", "   text", "a: >-", "'", '"', "a: 'b", "{a: b", "[a, b",
            "%YAML 1.1", "%TAG ! x", "a: !foo b", "\t", "# c", "a: ~", "y: n", "? [a]", "? {a: b}", "a: 0b", "a: 0x", "a: +",
            "a: "+"9" * 5000, "a: 1e400", "=: =", "a: !!set {x}", "a: !!omap [x]", "a: !!python/name:os.system",
            "a: !!float x", "a: !!bool x", "a: !!null x", "a: !!merge x", "a: !!str", "!!map []", "!!seq {}", "a: !!int",
            "a: !!int 0b", "a: !!timestamp x", "a: !!binary é", "a: !!pairs [x]", "a: 2001-99-99", "a: 2001-01-01 99:99:99",
        ]
    ),
    max_size=6,
).map(lambda found: "\n".join(found).encode())  # fmt: skip
written = st.one_of(lines, st.binary(max_size=60), st.text(max_size=40).map(str.encode), values.map(encoded).flatmap(mangled))


@FUZZ
@given(written)
@example(b"a: !!timestamp x")
@example(b"a: !!bool x")
def test_yaml(data: bytes) -> None:
    for read in (lambda: list(yamlio.loads_all(data)), lambda: yamlio.loads_reporting_duplicates(data)):
        try:
            found: Any = read()
        except yamlio.YamlError as error:
            assert str(error)
        else:
            jsonio.dumps(found)


plain = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.text(max_size=12),
        st.sampled_from(["y", "1e3", "~", "0x1", "-"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=10,
)


@FUZZ
@given(plain)
@example({"\x85": "\x85"})
@example({"a": "\ufeff"})
@example({"a": "x\ny\n\n"})
@example({"a": " \n"})
def test_yaml_that_is_written_is_read_again(value: Any) -> None:
    assert yamlio.loads(yamlio.dumps(value)) == value


@FUZZ
@given(written)
@example(b'"\\u"')
@example(b'"\\Uffffffff"')
@example(b'"\\ud800"')
@example(b"? a")
@example(b"a: " + b"9" * 5000)
def test_the_agent_s_own_yaml(data: bytes) -> None:
    """It reads less than others do. What both read must be the same, but for what each takes for a number or a time."""
    text = data.decode("utf-8", "replace")
    try:
        found = yamlsubset.load(text)
    except ConfigError as error:
        assert str(error)
        return
    json.dumps(found)
    try:
        theirs = yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        return
    assert isinstance(found, dict) == isinstance(theirs, dict) or found is None


# --- protobuf ---------------------------------------------------------------------------------------------------------

vectors = [base64.b64decode(vector["protobuf"]) for vector in VECTORS.values()]


@FUZZ
@given(
    st.one_of(
        st.sampled_from(sorted(vectors, key=len)).flatmap(mangled),
        st.binary(max_size=120).map(lambda tail: b"k8s\x00" + tail),
        st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=20)), max_size=8).map(
            lambda fields: protobuf.MAGIC + b"".join(bytes([number << 3 & 0x7F | 2, len(data)]) + data for number, data in fields)
        ),
    )
)
def test_protobuf(data: bytes) -> None:
    for default in (None, ("v1", "ConfigMap"), ("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")):
        try:
            found = protobuf.decode(data, default=default)
        except ProtobufError as error:
            assert str(error)
            continue
        assert not _has_no_number(found)
        jsonio.loads(jsonio.dumps(found))


def _has_no_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_no_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_no_number, value))
    return isinstance(value, float) and not math.isfinite(value)
