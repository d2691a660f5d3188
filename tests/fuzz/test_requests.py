"""Whatever is sent: an answer below 500, a Status where it is a refusal, a clean log, and a server that goes on."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from .budget import fuzzing
from .conftest import Target
from .shapes import encoded, numbers, objects, texts, values

FUZZ = fuzzing(40)

JSON = "application/json"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
HORSES = "/apis/ranch.example.com/v1/namespaces/default/horses"


def _deployment() -> dict[str, Any]:
    labels = {"app": "x"}
    containers = [{"name": "main", "image": "example/image:1", "ports": [{"containerPort": 80}]}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "fuzz", "labels": labels, "finalizers": ["example.com/a"]},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


SUBJECTS = {
    MAPS: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fuzz"}, "data": {"a": "1"}},
    DEPLOYMENTS: _deployment(),
    HORSES: {
        "apiVersion": "ranch.example.com/v1",
        "kind": "Horse",
        "metadata": {"name": "fuzz"},
        "spec": {"shoes": [{"leg": "left"}]},
    },
}


@pytest.fixture(scope="session")
def there(target: Target) -> Target:
    """With an object of each kind to torment."""
    for collection, obj in SUBJECTS.items():
        status, _ = target.send("GET", f"{collection}/fuzz")
        if status == 404:
            assert target.send("POST", collection, encoded(obj), Content_Type=JSON)[0] == 201
    return target


# --- bodies -----------------------------------------------------------------------------------------------------------


@FUZZ
@given(st.sampled_from(sorted(SUBJECTS)), objects, objects, objects)
def test_objects_of_any_shape(target: Target, where: str, top: Any, meta: Any, spec: Any) -> None:
    obj = SUBJECTS[where]
    body = {
        **top,
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {**meta, "generateName": "fuzz-"},
        "spec": spec,
    }
    target.send("POST", f"{where}?dryRun=All", encoded(body), Content_Type=JSON)


@FUZZ
@given(objects, objects, objects)
def test_pods_of_any_shape(target: Target, meta: Any, spec: Any, container: Any) -> None:
    spec = {**spec, "containers": [{"name": "c", "image": "i", **container}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "fuzz-", **meta}, "spec": spec}
    target.send("POST", f"{PODS}?dryRun=All", encoded(body), Content_Type=JSON)


@FUZZ
@given(st.sampled_from(sorted(SUBJECTS)), values)
@example(MAPS, {"kind": "0", "apiVersion": True})
def test_bodies_that_are_no_objects(target: Target, where: str, body: Any) -> None:
    target.send("POST", f"{where}?dryRun=All", encoded(body), Content_Type=JSON)
    target.send("PUT", f"{where}/fuzz?dryRun=All", encoded(body), Content_Type=JSON)
    target.send("DELETE", f"{where}/not-there", encoded(body), Content_Type=JSON)


@FUZZ
@given(st.sampled_from(sorted(SUBJECTS)), st.binary(max_size=200), st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]), texts)
@example(MAPS, b"", "POST", JSON)
@example(MAPS, b"\xff\xfe{", "POST", JSON)
@example(MAPS, b'{"a":1,"a":2}', "POST", JSON)
@example(HORSES, b'{"a":NaN}', "POST", JSON)
@example(HORSES, b'{"a":Infinity}', "POST", JSON)
@example(MAPS, b"a: &a [*a]", "POST", "application/yaml")
@example(MAPS, b"a: !!python/object/apply:os.system [ls]", "POST", "application/yaml")
@example(MAPS, b"? [a]\n: b", "POST", "application/yaml")
@example(MAPS, b"? {a: b}\n: b", "POST", "application/yaml")
@example(
    HORSES, b"apiVersion: ranch.example.com/v1\nkind: Horse\nmetadata: {name: x}\nspec: {legs: .nan}", "POST", "application/yaml"
)
@example(MAPS, b"<<: 1", "POST", "application/yaml")
@example(MAPS, b"<<: [1]\na: 1", "POST", "application/yaml")
def test_bytes_of_any_kind(target: Target, where: str, body: bytes, method: str, media: str) -> None:
    path = where if method == "POST" else f"{where}/fuzz"
    media = media.encode("ascii", "ignore").decode().replace("\x00", "").replace("\n", "").replace("\r", "")
    for kind in (media, "application/json", "application/yaml", *PATCHES.values()):
        target.send(method, f"{path}?dryRun=All&fieldManager=f", body, Content_Type=kind)


@pytest.mark.parametrize("where", sorted(SUBJECTS))
@pytest.mark.parametrize("nest", ['{"a":', "[", '{"spec":[', '{"metadata":{"labels":'])
@pytest.mark.parametrize("depth", [100, 10_000, 400_000])
def test_deep_nesting(target: Target, where: str, nest: str, depth: int) -> None:
    closing = "".join({"{": "}", "[": "]"}[char] for char in reversed(nest) if char in "{[")
    body = (nest * depth + "1" + closing * depth).encode()[: 3 * 1024 * 1024]
    target.send("POST", f"{where}?dryRun=All", body, Content_Type=JSON)
    obj = {**SUBJECTS[where], "metadata": {"name": "deep"}}
    inside = json.dumps(obj)[:-1].encode() + b',"deep":' + body + b"}"
    target.send("POST", f"{where}?dryRun=All", inside, Content_Type=JSON)
    for kind in PATCHES.values():
        target.send("PATCH", f"{where}/fuzz?dryRun=All&fieldManager=f", body, Content_Type=kind)
    if depth <= 10_000:
        target.send("POST", f"{where}?dryRun=All", body, Content_Type="application/yaml")


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"name":"x"},"data":{"a":"' + b"x" * 2_900_000 + b'"}}',
        b'{"metadata":{"name":"x"},"data":{' + b",".join(b'"k%d":"v"' % number for number in range(150_000)) + b"}}",
        b"[" + b"1," * 1_000_000 + b"1]",
        b'{"metadata":{"name":"x"},"data":{"a":' + b"9" * 100_000 + b"}}",
        b'{"metadata":{"name":"x"},"data":{"a":1e' + b"9" * 1000 + b"}}",
        b'{"' + b"a" * 1_000_000 + b'":1}',
        b'{"metadata":{"name":"x","labels":{"a":"\\ud800"}}}',
        b'{"metadata":{"name":"x\\u0000"}}',
        b"x" * (3 * 1024 * 1024 + 1),
    ],
    ids=range(9),
)
def test_huge_and_odd_bodies(target: Target, body: bytes) -> None:
    for where in (MAPS, HORSES):
        target.send("POST", f"{where}?dryRun=All", body, Content_Type=JSON)
    target.send("PATCH", f"{MAPS}/fuzz?dryRun=All", body, Content_Type=PATCHES["merge"])


@FUZZ
@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=6), st.integers(0, 300))
def test_protobuf_of_any_kind(target: Target, tail: bytes, flips: list[tuple[int, int]], cut: int) -> None:
    good = bytearray(_protobuf_config_map())
    for at, value in flips:
        good[4 + at % (len(good) - 4)] = value
    for body in (b"k8s\x00" + tail, bytes(good), bytes(good[: 4 + cut % len(good)]), b"k8s\x00" + bytes(good)):
        target.send("POST", f"{MAPS}?dryRun=All", body, Content_Type="application/vnd.kubernetes.protobuf")
        target.send("DELETE", f"{MAPS}/not-there", body, Content_Type="application/vnd.kubernetes.protobuf")


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + bytes([len(content)]) + content


def _protobuf_config_map() -> bytes:
    meta = _field(1, b"fuzz-proto") + _field(3, b"default")
    obj = _field(1, meta) + _field(2, _field(1, b"key") + _field(2, b"value"))
    return b"k8s\x00" + _field(1, _field(1, b"v1") + _field(2, b"ConfigMap")) + _field(2, obj)


@FUZZ
@given(st.integers(0, 2**64 - 1), st.integers(0, 7), st.integers(1, 20))
def test_protobuf_with_lying_lengths(target: Target, length: int, wire: int, number: int) -> None:
    varint = bytearray()
    while length > 127:
        varint.append(length & 127 | 128)
        length >>= 7
    varint.append(length)
    body = b"k8s\x00" + bytes([number << 3 | wire if number < 16 else 0x7A]) + bytes(varint) + struct.pack("<Q", length)
    target.send("POST", f"{MAPS}?dryRun=All", body, Content_Type="application/vnd.kubernetes.protobuf")


# --- patches ----------------------------------------------------------------------------------------------------------


@FUZZ
@given(st.sampled_from(sorted(SUBJECTS)), objects)
@example(DEPLOYMENTS, {"spec": {"template": {"spec": {"containers": [1]}}}})
@example(DEPLOYMENTS, {"spec": {"template": {"spec": {"containers": {"name": "main"}}}}})
@example(DEPLOYMENTS, {"spec": {"template": {"spec": {"containers": [{"$patch": "delete"}]}}}})
@example(DEPLOYMENTS, {"spec": {"template": {"spec": {"$setElementOrder/containers": 3, "containers": []}}}})
@example(DEPLOYMENTS, {"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}})
@example(DEPLOYMENTS, {"$patch": "replace"})
@example(DEPLOYMENTS, {"$patch": 3})
@example(HORSES, {"apiVersion": ["v1"]})
@example(HORSES, {"kind": {"a": 1}})
@example(DEPLOYMENTS, {"spec": {"$retainKeys": [3]}})
def test_patches_that_merge(there: Target, where: str, patch: Any) -> None:
    for kind in ("merge", "strategic", "apply"):
        for wrapped in (patch, {"spec": patch}, {"metadata": patch}, {"spec": {"template": {"spec": patch}}}):
            there.send("PATCH", f"{where}/fuzz?dryRun=All&fieldManager=f", encoded(wrapped), Content_Type=PATCHES[kind])


pointers = st.lists(
    st.one_of(texts, st.sampled_from(["-", "0", "01", "-1", "~0", "~1", "~2", "99999999999999999999"])), max_size=5
).map(lambda parts: "".join(f"/{part}" for part in parts))
steps = st.fixed_dictionaries(
    {"op": st.one_of(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), texts), "path": pointers},
    optional={"value": values, "from": pointers, "extra": values},
)


@FUZZ
@given(st.sampled_from(sorted(SUBJECTS)), st.one_of(st.lists(steps, max_size=5), values))
@example(MAPS, [{"op": "remove", "path": ""}])
@example(MAPS, [{"op": "replace", "path": "", "value": 3}])
@example(MAPS, [{"op": "replace", "path": "/metadata", "value": []}])
@example(HORSES, [{"op": "add", "path": "/spec/shoes/5", "value": {}}])
@example(HORSES, [{"op": "copy", "from": "", "path": "/spec/x"}] * 30)
def test_json_patches(there: Target, where: str, patch: Any) -> None:
    there.send("PATCH", f"{where}/fuzz?dryRun=All", encoded(patch), Content_Type=PATCHES["json"])


@FUZZ
@given(st.sampled_from(sorted(SUBJECTS)), objects, objects, texts, st.booleans())
def test_apply_of_any_shape(there: Target, where: str, top: Any, spec: Any, manager: str, force: bool) -> None:
    obj = {**top, **SUBJECTS[where], "spec": spec}
    query = urlencode({"dryRun": "All", "fieldManager": manager, "force": str(force).lower()})
    there.send("PATCH", f"{where}/fuzz?{query}", encoded(obj), Content_Type=PATCHES["apply"])


@FUZZ
@given(values, objects)
def test_managed_fields_of_any_shape(there: Target, entry: Any, fields: Any) -> None:
    for managed in (
        entry,
        [entry],
        [{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}],
    ):
        obj = {**SUBJECTS[MAPS], "metadata": {"name": "fuzz", "managedFields": managed}}
        there.send("PUT", f"{MAPS}/fuzz?dryRun=All", encoded(obj), Content_Type=JSON)


# --- queries, paths, headers ------------------------------------------------------------------------------------------

selectors = st.one_of(
    texts,
    st.text(alphabet="ab=!(),<> innotexists\\\"'", max_size=30),
    st.sampled_from(["a in (", "a in ()", "!a,!b", "a==b,c!=d", "a>1,a<x", "a notin (,)", "=", ",", "metadata.name=", "x/y/z=1"]),
)


@FUZZ
@given(st.sampled_from([MAPS, PODS, HORSES, "/api/v1/nodes"]), selectors, selectors)
def test_selectors(target: Target, where: str, labels: str, fields: str) -> None:
    target.send("GET", f"{where}?{urlencode({'labelSelector': labels, 'fieldSelector': fields}, errors='replace')}")


options = st.dictionaries(
    st.sampled_from(
        [
            "limit", "continue", "resourceVersionMatch", "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents", "pretty",
            "dryRun", "fieldManager", "fieldValidation", "force", "gracePeriodSeconds", "propagationPolicy", "orphanDependents",
            "includeObject", "labelSelector", "fieldSelector", "watch",
        ]
    ),
    st.one_of(texts, numbers.map(str), st.sampled_from(["true", "false", "All", "Exact", "NotOlderThan", "Object", "Strict"])),
    max_size=5,
)  # fmt: skip


@FUZZ
@given(options, st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"]))
def test_query_options(there: Target, query: dict[str, str], method: str) -> None:
    # A watch that is granted would not end: make sure that it does soon.
    if query.get("watch", "false") not in ("false", "0"):
        query = {**query, "timeoutSeconds": "1", "fieldSelector": "metadata.name=none"}
    if method == "DELETE":
        query = {**query, "dryRun": "All"}
    body = encoded(SUBJECTS[MAPS]) if method in ("POST", "PUT") else None
    where = MAPS if method in ("GET", "POST") else f"{MAPS}/fuzz"
    there.send(method, f"{where}?{urlencode(query, errors='replace')}", body, **({"Content_Type": JSON} if body else {}))


@FUZZ
@given(st.one_of(texts, st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")), st.text(alphabet="eyJ2Ijoi", max_size=40)))
def test_continue_tokens(target: Target, token: str) -> None:
    target.send("GET", f"{MAPS}?limit=1&{urlencode({'continue': token}, errors='replace')}")


@FUZZ
@given(st.fixed_dictionaries({}, optional={"v": values, "rv": st.one_of(numbers, values), "start": texts}))
@example({"v": "meta.k8s.io/v1", "rv": 2**70, "start": "x"})
@example({"v": "meta.k8s.io/v1", "rv": -2, "start": "x"})
@example({"v": "meta.k8s.io/v1", "rv": 1.5, "start": "x"})
@example({"v": "meta.k8s.io/v1", "rv": True, "start": "x"})
@example({"v": "meta.k8s.io/v1", "rv": 1, "start": "../../secrets/x"})
@example({"v": "meta.k8s.io/v1", "rv": 1, "start": "\x00"})
def test_continue_tokens_made_by_others(target: Target, token: Any) -> None:
    text = base64.urlsafe_b64encode(encoded({"v": "meta.k8s.io/v1", **token})).rstrip(b"=").decode()
    status, data = target.send("GET", f"{MAPS}?limit=1&continue={text}")
    assert status != 200 or b'"secrets"' not in data


@FUZZ
@given(
    st.lists(
        st.one_of(texts, st.sampled_from(["api", "apis", "v1", "namespaces", "default", "..", ".", "watch", "proxy"])), max_size=9
    )
)
@example(["api", "v1", "namespaces"])
@example(["api", "v1", "watch"])
@example(["apis", "", "v1", "x"])
@example(["openapi", "v3", "..", ".."])
def test_paths(target: Target, parts: list[str]) -> None:
    path = "/" + "/".join(quote(part, safe="", errors="replace") for part in parts)
    for method in ("GET", "POST", "DELETE"):
        target.send(method, path)


@pytest.mark.parametrize(
    "path", ["/%", "/%zz", "/%00", "/api/%2e%2e/secrets", "//api/v1", "/api//v1/pods", "/api/v1/pods/%ff", "/?a=%zz&=&&"]
)
def test_paths_that_are_badly_encoded(target: Target, path: str) -> None:
    target.send("GET", path)


headers = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=60)


@FUZZ
@given(headers, headers, headers)
@example("application/json;as=Table;g=meta.k8s.io;v=v99", "*/*;q=x", "text/html;;;==")
@example(",,,;", "application/json;as=", "application/json;as=Table")
def test_accept_and_content_types(there: Target, accept: str, content: str, encoding: str) -> None:
    for each in (accept, content, f"application/json;{accept}", f"{accept},application/json", f"application/json;as={content}"):
        there.send("GET", f"{MAPS}/fuzz", Accept=each, Accept_Encoding=encoding)
        there.send("GET", MAPS, Accept=each, User_Agent=encoding)
    there.send("POST", f"{MAPS}?dryRun=All", encoded(SUBJECTS[MAPS]), Content_Type=content, Content_Encoding=encoding)
    there.send(
        "POST", f"{MAPS}?dryRun=All", encoded(SUBJECTS[MAPS]), Content_Type=f"application/json;{content}", User_Agent=accept
    )


@FUZZ
@given(headers, headers, headers, headers)
@example("", "system:masters", "", "")
@example("system:serviceaccount:a", "", "x", "y")
@example("a%", "%zz", "%ff", "%")
def test_impersonation(target: Target, user: str, group: str, uid: str, extra: str) -> None:
    for sent in (
        {"Impersonate_User": user, "Impersonate_Group": group, "Impersonate_Uid": uid, "Impersonate_Extra_Scopes": extra},
        {"Impersonate_Group": group},
        {"Impersonate_Extra_%zz": extra, "Impersonate_User": user},
        {"Authorization": f"Bearer {user}"},
        {"Authorization": user},
        {"Authorization": f"Basic {group}"},
    ):
        target.send("GET", f"{MAPS}/fuzz", **sent)


# --- CEL --------------------------------------------------------------------------------------------------------------

rules = st.one_of(
    st.text(alphabet="self.colours()[]{}'\"=!<>&|?:+-*/%0123456789 abcxyz\\,", max_size=40),
    st.sampled_from(
        [
            "self.legs / 0 > 1", "self.shoes[99].leg == ''", "self.colour.matches('(a+)+$')", "self.colour.matches('[')",
            "self.legs + 9223372036854775807 > 0", "dyn(self).nothing", "self.shoes.all(x, self.shoes.all(y, true))", "1", "''",
            "string(self.legs).size() < 'x'", "has(self.colour.x)", "duration('x') > duration('1s')", "[1][5] == 1", "{}['a']",
            "self.colour.find('(').size() > 0", "int('x') > 0", "timestamp('x') == timestamp('y')", "oldSelf.legs == self.legs",
            "self.shoes.map(x, x.leg).sum() > 0", "true ? 1 : 'a'", "self == self", "type(self) == map", "cidr('x').ip() == 1",
            "quantity('x').isGreaterThan(quantity('1'))", "'%d'.format([self]) == ''", "self.legs << 1", "a.b.c.d()",
        ]
    ),
)  # fmt: skip


@FUZZ
@given(rules, rules)
def test_cel_rules_of_any_kind(target: Target, rule: str, message: str) -> None:
    from tests.api.ways import HORSE_CRD

    crd = json.loads(json.dumps(HORSE_CRD))
    crd["metadata"]["name"] = "mules.ranch.example.com"
    crd["spec"]["names"] = {"plural": "mules", "singular": "mule", "kind": "Mule", "listKind": "MuleList"}
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["x-kubernetes-validations"] = [{"rule": rule, "messageExpression": message}]
    target.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", encoded(crd), Content_Type=JSON)
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "fuzz"},
        "webhooks": [
            {
                "name": "a.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/x"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "matchConditions": [{"name": "c", "expression": rule}],
            }
        ],
    }
    where = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All"
    target.send("POST", where, encoded(policy), Content_Type=JSON)
