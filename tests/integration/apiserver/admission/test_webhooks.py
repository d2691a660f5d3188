"""Admission webhooks, asked over real TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from remuda.apiserver.admission.chain import Chain
from remuda.apiserver.admission.webhooks import MutatingWebhooks, ValidatingWebhooks
from remuda.apiserver.webhook_client import CallError, ServiceAddresses, WebhookClient
from remuda.kube.admission_attributes import DELETE, UPDATE, Attributes
from remuda.kube.authorization.actions import Action, Decision
from remuda.kube.authorization.users import User
from remuda.kube.clock import Entropy, SystemClock, VirtualClock
from remuda.kube.errors import ApiError
from tests.unit.apiserver.admission.stored import Stored, Widgets, namespace, request, widget
from tests.waiting import until

from .hookserver import HookServer, allow, patch, respond, serve_hooks

Obj = dict[str, Any]
GROUP = "admissionregistration.k8s.io"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[HookServer]:
    async with serve_hooks(tmp_path) as running:
        yield running


class World:
    def __init__(self, clock: Any = None) -> None:
        self.source = Stored()
        self.source.put("", "namespaces", namespace("shop", labels={"tier": "gold"}))
        self.kinds = Widgets()
        self.client = WebhookClient(clock or SystemClock(), ServiceAddresses(self.source))
        self.chain = Chain(
            [
                MutatingWebhooks(self.source, self.kinds, self.client, Entropy(1)),
                ValidatingWebhooks(self.source, self.kinds, self.client, Entropy(2)),
            ]
        )

    def mutating(self, *hooks: Obj, name: str = "m") -> None:
        self._put("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", name, hooks)

    def validating(self, *hooks: Obj, name: str = "v") -> None:
        self._put("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", name, hooks)

    def _put(self, kind: str, resource: str, name: str, hooks: tuple[Obj, ...]) -> None:
        obj = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "webhooks": list(hooks)}
        self.source.put(GROUP, resource, obj)

    async def write(self, attributes: Attributes) -> Attributes:
        await self.chain.admit(attributes)
        await self.chain.validate(attributes)
        return attributes

    async def refused(self, attributes: Attributes) -> ApiError:
        with pytest.raises(ApiError) as caught:
            await self.write(attributes)
        return caught.value


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.client.close()


def hook(config: Obj, name: str = "check.example.com", **fields: Any) -> Obj:
    return {
        "name": name,
        "clientConfig": config,
        "rules": [
            {
                "apiGroups": ["example.com"],
                "apiVersions": ["v1"],
                "operations": ["*"],
                "resources": ["widgets"],
                "scope": "*",
            }
        ],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        **fields,
    }


async def test_the_review_has_the_user_and_the_operation(world: World, server: HookServer) -> None:
    world.validating(hook(server.config()))
    await world.write(request(widget(size=1), "widgets", UPDATE, old=widget(size=0)))
    [review] = server.reviews
    assert server.urls == ["/hook?timeout=10s"]
    asked = review["request"]
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert asked["kind"] == {"group": "example.com", "version": "v1", "kind": "Widget"} == asked["requestKind"]
    assert asked["resource"] == {"group": "example.com", "version": "v1", "resource": "widgets"} == asked["requestResource"]
    assert (asked["name"], asked["namespace"], asked["operation"], asked["dryRun"]) == ("w", "shop", "UPDATE", False)
    assert asked["userInfo"] == {"username": "alice", "uid": "42", "groups": ["system:authenticated"]}
    assert (asked["object"]["spec"], asked["oldObject"]["spec"]) == ({"size": 1}, {"size": 0})
    assert asked["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}


async def test_a_patch_changes_the_object_and_is_defaulted_again(world: World, server: HookServer) -> None:
    world.mutating(hook(server.config()))
    server.answer = patch({"op": "add", "path": "/spec/size", "value": 9})
    given = widget()
    attributes = await world.write(request(given, "widgets"))
    assert attributes.obj is not None
    assert attributes.obj["spec"] == {"size": 9, "colour": "grey"}
    assert given["spec"] == {}
    key = "mutation.webhook.admission.k8s.io/round_0_index_0"
    assert attributes.annotations[key] == '{"configuration":"m","webhook":"check.example.com","mutated":true}'


async def test_connections_are_reused(world: World, server: HookServer) -> None:
    world.validating(hook(server.config()))
    for _ in range(5):
        await world.write(request(widget(), "widgets"))
    assert len(server.reviews) == 5
    assert len(server.connections) == 1


@pytest.mark.parametrize(
    ("status", "message", "code", "reason"),
    [
        (None, 'admission webhook "check.example.com" denied the request without explanation', 400, ""),
        ({"message": "too big"}, 'admission webhook "check.example.com" denied the request: too big', 400, ""),
        ({"reason": "Odd", "code": 200}, 'admission webhook "check.example.com" denied the request: Odd', 400, "Odd"),
        (
            {"message": "no", "reason": "Forbidden", "code": 403},
            'admission webhook "check.example.com" denied the request: no',
            403,
            "Forbidden",
        ),
    ],
)
async def test_a_refusal_names_the_webhook(
    world: World, server: HookServer, status: Obj | None, message: str, code: int, reason: str
) -> None:
    world.validating(hook(server.config()))
    server.answer = lambda review: respond(review, allowed=False, **({"status": status} if status else {}))
    error = await world.refused(request(widget(), "widgets"))
    assert (error.message, error.code, error.reason) == (message, code, reason)


async def test_a_dead_webhook_fails_closed_or_open(world: World, server: HookServer, unused_tcp_port_factory: Any) -> None:
    port = unused_tcp_port_factory()
    config = {"url": f"https://127.0.0.1:{port}/x", "caBundle": server.ca_bundle}
    world.validating(hook(config))
    error = await world.refused(request(widget(), "widgets"))
    failure = f'Post "https://127.0.0.1:{port}/x?timeout=10s": dial tcp 127.0.0.1:{port}: connect: connection refused'
    expected = f'failed calling webhook "check.example.com": failed to call webhook: {failure}'
    assert error.code == 500
    assert error.message == f"Internal error occurred: {expected}"
    assert error.details == {"causes": [{"message": expected}]}
    world.validating(hook(config, failurePolicy="Ignore"))
    attributes = await world.write(request(widget(), "widgets"))
    assert attributes.annotations == {"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "check.example.com"}


async def test_a_slow_webhook_times_out_on_the_injected_clock(server: HookServer) -> None:
    clock = VirtualClock()
    world = World(clock)
    server.hang = asyncio.Event()
    world.validating(hook(server.config(), timeoutSeconds=3))
    writing = asyncio.create_task(world.write(request(widget(), "widgets")))
    await until(lambda: server.reviews)
    assert not writing.done()
    await clock.advance(3)
    with pytest.raises(ApiError) as caught:
        await writing
    expected = f'failed to call webhook: Post "https://127.0.0.1:{server.port}/hook?timeout=3s": context deadline exceeded'
    assert caught.value.message.endswith(expected)
    await world.client.close()


async def test_an_untrusted_certificate_is_refused(world: World, server: HookServer, tmp_path: Path) -> None:
    from tests.real.pki import Authority

    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    import base64

    bundle = base64.b64encode(other.pair.cert.read_bytes()).decode()
    world.validating(hook({**server.config(), "caBundle": bundle}))
    error = await world.refused(request(widget(), "widgets"))
    assert error.message.endswith("tls: failed to verify certificate: x509: certificate signed by unknown authority")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            lambda r: {**respond(r, allowed=True), "kind": "Other"},
            'no kind "Other" is registered for version "admission.k8s.io/v1" in scheme',
        ),
        (
            lambda r: {"response": {"allowed": True, "uid": r["request"]["uid"]}},
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        (
            lambda r: {"kind": "Status", "apiVersion": "v1", "status": "Failure"},
            "failed to call webhook: converting (v1.Status) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            lambda r: respond(r, allowed="yes"),
            "failed to call webhook: json: cannot unmarshal string into Go struct field "
            "AdmissionResponse.response.allowed of type bool",
        ),
        (lambda r: respond(r, allowed=True, patch="!!"), "failed to call webhook: illegal base64 data at input byte 0"),
        (lambda r: {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}, "webhook response was absent"),
        (lambda r: respond({**r, "request": {"uid": "x"}}, allowed=True), 'got "x"'),
        (lambda r: respond(r, allowed=True, patch="W10="), "validating webhook may not return response.patch"),
        (lambda r: web.Response(status=404), "the server could not find the requested resource"),
        (
            lambda r: web.Response(status=500, text="boom"),
            'an error on the server ("boom") has prevented the request from succeeding',
        ),
        (lambda r: web.Response(text=""), "0-length response with status code: 200 and content type: text/plain"),
        (
            lambda r: web.Response(text="<html>"),
            "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct "
            r'{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }',
        ),
    ],
)
async def test_answers_that_are_none(world: World, server: HookServer, answer: Any, text: str) -> None:
    world.validating(hook(server.config()))
    server.answer = answer
    error = await world.refused(request(widget(), "widgets"))
    assert error.code == 500
    assert text in error.message


async def test_a_mutating_webhook_must_not_patch_a_deletion(world: World, server: HookServer) -> None:
    world.mutating(hook(server.config()))
    server.answer = patch({"op": "add", "path": "/spec/size", "value": 9})
    error = await world.refused(request(None, "widgets", DELETE, old=widget()))
    assert "attempted to modify the object, which is not supported for this operation" in error.message


async def test_rules_selectors_and_exemptions_choose_the_webhooks(world: World, server: HookServer) -> None:
    everything = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*/*"]}]
    world.validating(hook(server.config(), rules=everything))
    await world.write(request(widget(), "widgets"))
    await world.write(request(widget(), "widgets", UPDATE, old=widget()))
    await world.write(request(widget(), "widgets", subresource="status"))
    own = {"apiVersion": f"{GROUP}/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "m"}}
    await world.write(request(own, "mutatingwebhookconfigurations"))
    assert [review["request"].get("subResource", "") for review in server.reviews] == ["", "status"]

    server.reviews.clear()
    world.validating(hook(server.config(), namespaceSelector={"matchLabels": {"tier": "silver"}}))
    await world.write(request(widget(), "widgets"))
    world.validating(hook(server.config(), objectSelector={"matchLabels": {"a": "b"}}))
    await world.write(request(widget(), "widgets"))
    assert server.reviews == []
    await world.write(request(widget(labels={"a": "b"}), "widgets"))
    assert len(server.reviews) == 1


async def test_scope_tells_namespaced_from_cluster_wide(world: World, server: HookServer) -> None:
    def rules(scope: str) -> list[Obj]:
        return [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": scope}]

    world.validating(
        hook(server.config("/ns"), "a.example.com", rules=rules("Namespaced")),
        hook(server.config("/cluster"), "b.example.com", rules=rules("Cluster")),
    )
    await world.write(request(widget(), "widgets"))
    await world.write(request(namespace("new"), "namespaces", namespace="new"))
    assert server.urls == ["/ns?timeout=10s", "/cluster?timeout=10s"]


async def test_another_version_is_converted_there_and_back(world: World, server: HookServer) -> None:
    world.mutating(hook(server.config()))
    server.answer = patch({"op": "replace", "path": "/spec/length", "value": 5})
    attributes = await world.write(request(widget("v2", size=1), "widgets"))
    asked = server.reviews[0]["request"]
    assert asked["object"]["spec"] == {"length": 1}
    assert (asked["resource"]["version"], asked["requestResource"]["version"]) == ("v1", "v2")
    assert attributes.obj is not None
    assert attributes.obj["apiVersion"] == "example.com/v2"
    assert attributes.obj["spec"] == {"size": 5, "colour": "grey"}
    server.reviews.clear()
    world.mutating(hook(server.config(), matchPolicy="Exact"))
    await world.write(request(widget("v2"), "widgets"))
    assert server.reviews == []


async def test_mutating_webhooks_run_in_order_and_again_when_needed(world: World, server: HookServer) -> None:
    def answer(review: Obj) -> Obj:
        seen = review["request"]["object"]["spec"]
        if server.urls[-1].startswith("/b") and "b" not in seen:
            return patch({"op": "add", "path": "/spec/b", "value": 1})(review)  # type: ignore[no-any-return]
        return allow(review)

    server.answer = answer
    world.mutating(
        hook(server.config("/a"), "a.example.com", reinvocationPolicy="IfNeeded"),
        hook(server.config("/never"), "never.example.com", reinvocationPolicy="Never"),
        name="1",
    )
    world.mutating(hook(server.config("/b"), "b.example.com", reinvocationPolicy="IfNeeded"), name="2")
    attributes = await world.write(request(widget(), "widgets"))
    assert [url.partition("?")[0] for url in server.urls] == ["/a", "/never", "/b", "/a"]
    assert attributes.obj is not None
    assert attributes.obj["spec"]["b"] == 1
    assert "mutation.webhook.admission.k8s.io/round_1_index_0" in attributes.annotations


def conditions(*expressions: str) -> list[Obj]:
    return [{"name": f"c{number}", "expression": expression} for number, expression in enumerate(expressions)]


async def test_match_conditions_are_evaluated_before_the_webhook_is_called(world: World, server: HookServer) -> None:
    wanted = conditions("object.spec.size > 3", "request.userInfo.username == 'alice'")
    world.validating(hook(server.config(), matchConditions=wanted))
    await world.write(request(widget(size=1), "widgets"))
    assert server.reviews == []
    await world.write(request(widget(size=9), "widgets"))
    assert len(server.reviews) == 1


async def test_a_failing_match_condition_follows_the_failure_policy(world: World, server: HookServer) -> None:
    broken = conditions("object.spec.nothing == 1")
    world.validating(hook(server.config(), matchConditions=broken))
    error = await world.refused(request(widget(), "widgets"))
    why = "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing"
    assert (error.code, error.message) == (403, f'widgets.example.com "w" is forbidden: {why}')
    world.validating(hook(server.config(), matchConditions=[*broken, *conditions("false")]))
    await world.write(request(widget(), "widgets"))
    world.validating(hook(server.config(), matchConditions=broken, failurePolicy="Ignore"))
    await world.write(request(widget(), "widgets"))
    assert server.reviews == []


async def test_match_conditions_may_ask_the_authorizer(server: HookServer) -> None:
    class OnlyAlice:
        def authorize(self, action: Action) -> Decision:
            return Decision(action.user.name == "alice" and action.verb == "breakglass")

    source, client = Stored(), WebhookClient(SystemClock())
    plugin = ValidatingWebhooks(source, Widgets(), client, Entropy(2), OnlyAlice())
    wanted = conditions("!authorizer.group('example.com').resource('widgets').check('breakglass').allowed()")
    obj = {"metadata": {"name": "v"}, "webhooks": [hook(server.config(), matchConditions=wanted)]}
    source.put(GROUP, "validatingwebhookconfigurations", obj)
    await plugin.validate(request(widget(), "widgets"))
    assert server.reviews == []
    await plugin.validate(request(widget(), "widgets", user=User("bob")))
    assert len(server.reviews) == 1
    await client.close()


async def test_dry_run_needs_a_webhook_without_side_effects(world: World, server: HookServer) -> None:
    world.validating(hook(server.config(), sideEffects="Some"))
    error = await world.refused(request(widget(), "widgets", dry_run=True))
    assert (error.code, error.message) == (400, 'admission webhook "check.example.com" does not support dry run')
    world.validating(hook(server.config(), sideEffects="NoneOnDryRun"))
    await world.write(request(widget(), "widgets", dry_run=True))
    assert server.reviews[-1]["request"]["dryRun"] is True


async def test_warnings_and_audit_annotations_are_handed_on(world: World, server: HookServer) -> None:
    world.validating(hook(server.config()))
    server.answer = lambda review: respond(review, allowed=True, warnings=["old"], auditAnnotations={"k": "v"})
    attributes = await world.write(request(widget(), "widgets"))
    assert attributes.warnings == ["old"]
    assert attributes.annotations == {"check.example.com/k": "v"}


async def test_v1beta1_is_understood(world: World, server: HookServer) -> None:
    world.mutating(hook(server.config(), admissionReviewVersions=["v0", "v1beta1"]))
    server.answer = lambda review: {
        "response": {"allowed": True, "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMveCIsInZhbHVlIjoxfV0="}
    }
    attributes = await world.write(request(widget(), "widgets"))
    assert server.reviews[0]["apiVersion"] == "admission.k8s.io/v1beta1"
    assert attributes.obj is not None
    assert attributes.obj["spec"]["x"] == 1


async def test_a_service_needs_a_cluster_network(world: World, server: HookServer) -> None:
    service = {"service": {"name": "hooks", "namespace": "shop", "path": "/x"}, "caBundle": server.ca_bundle}
    world.validating(hook(service))
    error = await world.refused(request(widget(), "widgets"))
    assert error.message.endswith('Post "https://hooks.shop.svc:443/x?timeout=10s": service "hooks" not found')
    world.source.put("", "services", {"metadata": {"name": "hooks", "namespace": "shop"}})
    error = await world.refused(request(widget(), "widgets"))
    assert "is not reachable from an embedded API server; set clientConfig.url instead" in error.message


@pytest.mark.parametrize(
    ("spec", "slices", "found"),
    [
        ({"type": "ExternalName", "externalName": "hooks.example.com"}, [], ("hooks.example.com", 443)),
        (
            {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": 443, "targetPort": 9443}]},
            [],
            ("localhost", 9443),
        ),
        (
            {"ports": [{"port": 443, "name": "https", "targetPort": "webhooks"}]},
            [
                {"of": "another", "port": 1, "addresses": ["192.0.2.1"]},
                {"of": "hooks", "port": 2, "addresses": ["192.0.2.2"], "ready": False},
                {"of": "hooks", "port": 9443, "addresses": ["192.0.2.3"]},
            ],
            ("192.0.2.3", 9443),
        ),
        ({"ports": [{"port": 80, "name": "https"}]}, [{"of": "hooks", "port": 9443, "addresses": ["192.0.2.3"]}], None),
        ({"ports": [{"port": 443, "name": "https"}]}, [{"of": "hooks", "port": 9443, "addresses": []}], None),
        ({}, [], None),
    ],
)
def test_the_address_of_a_service(spec: Obj, slices: list[Obj], found: tuple[str, int] | None) -> None:
    source = Stored()
    source.put("", "services", {"metadata": {"name": "hooks", "namespace": "shop"}, "spec": spec})
    for number, each in enumerate(slices):
        made = {
            "metadata": {"name": f"s{number}", "namespace": "shop", "labels": {"kubernetes.io/service-name": each["of"]}},
            "ports": [{"name": "https", "port": each["port"]}],
            "endpoints": [{"addresses": each["addresses"], "conditions": {"ready": each.get("ready", True)}}],
        }
        source.put("discovery.k8s.io", "endpointslices", made)
    if found is not None:
        assert ServiceAddresses(source).resolve("shop", "hooks", 443) == found
        return
    with pytest.raises(CallError, match="not reachable from an embedded API server"):
        ServiceAddresses(source).resolve("shop", "hooks", 443)


async def test_a_service_is_called_by_its_own_name(world: World, server: HookServer) -> None:
    """One that is in the certificate of the server, and one that is not."""
    spec = {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": 443, "targetPort": server.port}]}
    for name in ("kubernetes", "others"):
        world.source.put("", "services", {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    config = {"service": {"name": "kubernetes", "namespace": "default", "path": "/x"}, "caBundle": server.ca_bundle}
    world.validating(hook(config))
    await world.write(request(widget(), "widgets"))
    assert [url.partition("?")[0] for url in server.urls] == ["/x"]
    world.validating(hook({**config, "service": {**config["service"], "name": "others"}}))
    error = await world.refused(request(widget(), "widgets"))
    assert "others.default.svc" in error.message and "certificate" in error.message


async def test_validating_webhooks_are_all_heard(world: World, server: HookServer) -> None:
    server.answer = lambda review: respond(review, allowed=not server.urls[-1].startswith("/no"))
    world.validating(hook(server.config("/no"), "no.example.com"), hook(server.config("/yes"), "yes.example.com"))
    error = await world.refused(request(widget(), "widgets"))
    assert 'webhook "no.example.com" denied' in error.message or 'webhook "yes.example.com" denied' in error.message
    assert len(server.reviews) == 2


async def test_a_changed_configuration_counts_at_once(world: World, server: HookServer) -> None:
    await world.write(request(widget(), "widgets"))
    world.validating(hook(server.config()))
    await world.write(request(widget(), "widgets"))
    world.source.remove(GROUP, "validatingwebhookconfigurations", "", "v")
    await world.write(request(widget(), "widgets"))
    assert len(server.reviews) == 1
