"""The upstream manager's conversion webhook and ours give the same answer to every object, field by field."""

from __future__ import annotations

import json
import random
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.capi.conversion import DATA_ANNOTATION, convert
from remuda.capi.conversion.go_structs import StructFields
from remuda.capi.conversion.kind_rules import KINDS as TABLE
from tests.api.harness import RemudaProcess, difference
from tests.e2e.upstream_capi import Manager
from tests.real import need
from tests.real.capi_samples import GROUP, KINDS, Obj, Samples, schemas
from tests.scenarios.soaking import SEED, SOAK

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(0 if SOAK else 600)]
EACH = 20_000 if SOAK else 250
BATCH = 100


class Provided:
    """As the labels of the test's provider CRDs say."""

    def api_version(self, group: str, kind: str) -> str | None:
        return f"{group}/v1"


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    need.programs("capi")
    directory = Path(tmp_path_factory.mktemp("conversion"))
    server = RemudaProcess(directory / "data")
    server.start()
    found = Manager("remuda", server.endpoint, server.kubeconfig, directory)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        server.stop()


@pytest.fixture(scope="module")
def found_schemas() -> dict[tuple[str, str], Obj]:
    need.programs("capi")
    return schemas()


def _ask(manager: Manager, version: str, objs: list[Obj]) -> list[Obj]:
    review = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "1", "desiredAPIVersion": f"{GROUP}/{version}", "objects": objs},
    }
    context = ssl._create_unverified_context()
    request = urllib.request.Request(
        f"https://127.0.0.1:{manager.webhook_port}/convert",
        json.dumps(review).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=240, context=context) as answer:
        response = json.load(answer)["response"]
    assert response["result"]["status"] == "Success", (SEED, response["result"])
    converted: list[Obj] = response["convertedObjects"]
    return converted


def _readable(obj: Obj) -> Obj:
    """With the annotation's data parsed: the order of its keys means nothing."""
    annotations: dict[str, Any] = dict(obj["metadata"].get("annotations") or {})
    if DATA_ANNOTATION in annotations:
        annotations[DATA_ANNOTATION] = json.loads(annotations[DATA_ANNOTATION])
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _text(obj: Obj) -> str:
    return json.dumps(obj, sort_keys=True)


def _compare(manager: Manager, objs: list[Obj], version: str) -> list[Obj]:
    answers = []
    for start in range(0, len(objs), BATCH):
        batch = objs[start : start + BATCH]
        for obj, theirs in zip(batch, _ask(manager, version, batch), strict=True):
            before = json.dumps(obj)
            ours = convert(obj, f"{GROUP}/{version}", Provided())
            assert json.dumps(obj) == before, "the given object was changed"
            left, right = _readable(ours), _readable(theirs)
            # As text, since to Python True is 1.
            assert _text(left) == _text(right), f"seed {SEED}\n{before}\n" + difference(
                left, right, f"{obj['kind']} to {version}"
            )
            answers.append(theirs)
    return answers


@pytest.mark.parametrize("kind", KINDS)
def test_upstream_agrees_in_both_directions(manager: Manager, found_schemas: dict[tuple[str, str], Obj], kind: str) -> None:
    print(f"REMUDA_SEED={SEED}")
    samples = Samples(random.Random(f"{SEED}.{kind}"), found_schemas)
    for _ in range(max(1, EACH // 1000)):
        count = min(EACH, 1000)
        new = [samples.obj(kind, "v1beta2") for _ in range(count)]
        down = _compare(manager, new, "v1beta1")
        # What came down goes up again as it is, and changed by somebody who left the annotation alone.
        _compare(manager, down, "v1beta2")
        old = [samples.obj(kind, "v1beta1") for _ in range(count)]
        _compare(manager, old, "v1beta2")
        data = [obj["metadata"].get("annotations", {}).get(DATA_ANNOTATION) for obj in down]
        _compare(manager, [_with_data(obj, each) for obj, each in zip(old, data, strict=True) if each], "v1beta2")


def _with_data(obj: Obj, data: str) -> Obj:
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), DATA_ANNOTATION: data}}}


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_have_the_fields_of_the_crds(found_schemas: dict[tuple[str, str], Obj], kind: str) -> None:
    for version in ("v1beta1", "v1beta2"):
        schema = found_schemas[kind, version]
        sections = {name: schema["properties"][name] for name in ("spec", "status") if name in schema["properties"]}
        shape: StructFields = getattr(TABLE[kind], version)
        assert set(_of_shape(shape)) == set(_of_schema({"type": "object", "properties": sections}))


def _of_shape(shape: StructFields, path: str = "") -> Iterator[str]:
    for name, field in shape.fields.items():
        yield f"{path}.{name}"
        if field.shape is not None:
            yield from _of_shape(field.shape, f"{path}.{name}")


def _of_schema(schema: Obj, path: str = "") -> Iterator[str]:
    inner = schema.get("items") or schema.get("additionalProperties")
    if isinstance(inner, dict):
        yield from _of_schema(inner, path)
    for name, child in (schema.get("properties") or {}).items():
        yield f"{path}.{name}"
        yield from _of_schema(child, f"{path}.{name}")
