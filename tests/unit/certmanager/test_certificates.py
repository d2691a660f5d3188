"""Certificates on a virtual clock: signed by their issuers, renewed, reissued when something differs, and trusted by webhooks."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import crds
from remuda.api.cert_manager_io import API_VERSION, CERTIFICATES, CLUSTER_ISSUERS, GROUP, ISSUERS
from remuda.certmanager.certificates import Certificates
from remuda.certmanager.injection import definitions, mutating, validating
from remuda.certmanager.issuers import cluster_issuers, issuers
from remuda.kube.builtin_resources import CRDS, NAMESPACES, SECRETS
from remuda.kube.certificates import DAY, common_name, ends, names_in, parse_certificates
from remuda.kube.conditions import get
from remuda.kube.objects import annotations_of, dig
from remuda.runtime import Reconciler
from remuda.runtime.webhook_server import MUTATING, VALIDATING
from tests.unit.access.management_api import Obj, Parts, World, world

NAMESPACE = "ranch"


def everything(parts: Parts) -> Iterable[Reconciler]:
    manager = parts.manager
    yield from (issuers(manager), cluster_issuers(manager), Certificates(manager, parts.entropy))
    yield from (definitions(manager), mutating(manager), validating(manager))


async def prepared(made: World) -> None:
    for name in (NAMESPACE, "cert-manager"):
        await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for definition in crds([GROUP]):
        await made.create(CRDS, definition)
    await made.settle(60)


def issuer(name: str = "self", namespace: str = NAMESPACE, **spec: Any) -> Obj:
    kind = "Issuer" if namespace else "ClusterIssuer"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec or {"selfSigned": {}}}


def certificate(name: str = "serving", by: str = "self", kind: str = "Issuer", **spec: Any) -> Obj:
    wanted = {"secretName": f"{name}-tls", "issuerRef": {"name": by, "kind": kind}, "dnsNames": ["hooks.ranch.svc"], **spec}
    return {
        "apiVersion": API_VERSION,
        "kind": "Certificate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": wanted,
    }


async def issued(made: World, name: str = "serving-tls", namespace: str = NAMESPACE) -> dict[str, bytes]:
    secret = await made.get(SECRETS, name, namespace)
    return {key: base64.b64decode(value) for key, value in secret["data"].items()}


async def said(made: World, name: str = "serving") -> tuple[str, str, str]:
    found = get(await made.get(CERTIFICATES, name, NAMESPACE), "Ready") or {}
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


async def test_a_self_signed_certificate_is_its_own_ca() -> None:
    async with world(everything) as made:
        await prepared(made)
        await made.create(ISSUERS, issuer())
        await made.create(CERTIFICATES, certificate(ipAddresses=["192.0.2.1"], subject={"organizations": ["ranch hands"]}))
        await made.settle(10)
        data = await issued(made)
        (leaf,) = parse_certificates(data["tls.crt"])
        assert names_in(leaf) == ("192.0.2.1", "hooks.ranch.svc")
        assert data["ca.crt"] == data["tls.crt"] and b"PRIVATE KEY" in data["tls.key"]
        leaf.verify_directly_issued_by(leaf)
        secret = await made.get(SECRETS, "serving-tls", NAMESPACE)
        assert secret["type"] == "kubernetes.io/tls"
        assert annotations_of(secret)["cert-manager.io/certificate-name"] == "serving"
        assert annotations_of(secret)["cert-manager.io/alt-names"] == "hooks.ranch.svc"
        assert await said(made) == ("True", "Ready", "Certificate is up to date and has not expired")
        assert (get(await made.get(ISSUERS, "self", NAMESPACE), "Ready") or {})["status"] == "True"
        assert dig(await made.get(CERTIFICATES, "serving", NAMESPACE), "status", "revision") == 1


async def test_a_ca_that_a_certificate_made_signs_others() -> None:
    async with world(everything) as made:
        await prepared(made)
        await made.create(ISSUERS, issuer())
        await made.create(ISSUERS, issuer("ca", ca={"secretName": "root-tls"}))
        await made.create(CERTIFICATES, certificate("leaf", "ca", commonName="leaf", usages=["server auth", "client auth"]))
        await made.settle(10)
        assert (await said(made, "leaf"))[:2] == ("False", "ErrGetKeyPair")
        await made.create(CERTIFICATES, certificate("root", isCA=True, commonName="root", dnsNames=[]))
        await made.settle(10)
        root = parse_certificates((await issued(made, "root-tls"))["tls.crt"])[0]
        data = await issued(made, "leaf-tls")
        leaf = parse_certificates(data["tls.crt"])[0]
        leaf.verify_directly_issued_by(root)
        assert parse_certificates(data["ca.crt"]) == [root]
        assert common_name(leaf) == "leaf"
        # A new CA signs what the old one had signed.
        await made.delete(SECRETS, "root-tls", NAMESPACE)
        await made.settle(10)
        newer = parse_certificates((await issued(made, "root-tls"))["tls.crt"])[0]
        assert newer != root
        parse_certificates((await issued(made, "leaf-tls"))["tls.crt"])[0].verify_directly_issued_by(newer)


async def test_the_ca_of_a_cluster_issuer_is_in_cert_managers_namespace() -> None:
    async with world(everything) as made:
        await prepared(made)
        await made.create(CLUSTER_ISSUERS, issuer("all", "", ca={"secretName": "root-tls"}))
        await made.create(ISSUERS, issuer("self", "cert-manager"))
        root = certificate("root", isCA=True, commonName="root", dnsNames=[])
        root["metadata"]["namespace"] = "cert-manager"
        await made.create(CERTIFICATES, root)
        await made.create(CERTIFICATES, certificate(by="all", kind="ClusterIssuer"))
        await made.settle(120)
        ca = parse_certificates((await issued(made, "root-tls", "cert-manager"))["tls.crt"])[0]
        parse_certificates((await issued(made))["tls.crt"])[0].verify_directly_issued_by(ca)


async def test_it_is_renewed_with_a_new_key_before_it_ends() -> None:
    async with world(everything) as made:
        await prepared(made)
        await made.create(ISSUERS, issuer())
        await made.create(CERTIFICATES, certificate(duration="72h"))
        await made.create(CERTIFICATES, certificate("kept", duration="72h", privateKey={"rotationPolicy": "Never"}))
        await made.settle(10)
        before, kept = await issued(made), await issued(made, "kept-tls")
        await made.settle(1.9 * DAY)
        assert await issued(made) == before
        await made.settle(0.2 * DAY)
        after = await issued(made)
        assert ends(parse_certificates(after["tls.crt"])[0]) - ends(parse_certificates(before["tls.crt"])[0]) > DAY
        assert after["tls.key"] != before["tls.key"]
        again = await issued(made, "kept-tls")
        assert again["tls.key"] == kept["tls.key"] and again["tls.crt"] != kept["tls.crt"]
        assert dig(await made.get(CERTIFICATES, "serving", NAMESPACE), "status", "revision") == 2


async def test_a_changed_spec_or_a_damaged_secret_is_signed_again() -> None:
    async with world(everything) as made:
        await prepared(made)
        await made.create(ISSUERS, issuer())
        await made.create(CERTIFICATES, certificate())
        await made.settle(10)
        await made.patch(CERTIFICATES, "serving", {"spec": {"dnsNames": ["other.ranch.svc"]}}, NAMESPACE)
        await made.settle(10)
        assert names_in(parse_certificates((await issued(made))["tls.crt"])[0]) == ("other.ranch.svc",)
        await made.patch(SECRETS, "serving-tls", {"data": {"tls.key": base64.b64encode(b"x").decode()}}, NAMESPACE)
        await made.settle(10)
        assert b"PRIVATE KEY" in (await issued(made))["tls.key"]


@pytest.mark.parametrize(
    ("wanted", "key"),
    [
        ({}, b"EC PRIVATE KEY"),
        ({"algorithm": "ECDSA", "size": 384, "encoding": "PKCS8"}, b"BEGIN PRIVATE KEY"),
        ({"algorithm": "ECDSA", "size": 521}, b"EC PRIVATE KEY"),
        ({"algorithm": "RSA"}, b"RSA PRIVATE KEY"),
        ({"algorithm": "Ed25519"}, b"BEGIN PRIVATE KEY"),
    ],
)
async def test_every_kind_of_key(wanted: Obj, key: bytes) -> None:
    async with world(everything) as made:
        await prepared(made)
        await made.create(ISSUERS, issuer())
        await made.create(CERTIFICATES, certificate(privateKey=wanted))
        await made.settle(10)
        assert key in (await issued(made))["tls.key"]
        assert dig(await made.get(CERTIFICATES, "serving", NAMESPACE), "status", "revision") == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"duration": "soon"}, "spec.duration: 'soon' is not a duration, such as 2160h"),
        ({"duration": "1m"}, "spec.duration: must be an hour or more"),
        ({"renewBefore": "9000h"}, "spec.renewBefore: must be five minutes or more, and less than spec.duration"),
        ({"ipAddresses": ["here"]}, "spec.ipAddresses: 'here' is not an IP address"),
        ({"dnsNames": []}, "spec: one of commonName, dnsNames, ipAddresses and uris must be set"),
        ({"usages": ["magic"]}, "spec.usages: 'magic' is not supported"),
        ({"privateKey": {"algorithm": "RSA", "size": 1024}}, "spec.privateKey.size: must be one of 2048, 3072, 4096 for RSA"),
    ],
)
async def test_a_spec_that_can_not_be_signed_says_why(spec: Obj, message: str) -> None:
    async with world(everything) as made:
        await prepared(made)
        await made.create(ISSUERS, issuer())
        await made.create(CERTIFICATES, certificate(**spec))
        await made.settle(10)
        assert await said(made) == ("False", "InvalidSpec", message)
        assert await made.find(SECRETS, "serving-tls", NAMESPACE) is None


async def test_an_issuer_that_is_missing_or_unknown_is_named() -> None:
    async with world(everything) as made:
        await prepared(made)
        await made.create(CERTIFICATES, certificate())
        await made.settle(10)
        assert await said(made) == ("False", "DoesNotExist", "there is no Issuer self")
        await made.create(ISSUERS, issuer(acme={"server": "https://acme.example.com"}))
        await made.settle(10)
        assert (await said(made))[:2] == ("False", "Unsupported")
        assert dig(await made.get(ISSUERS, "self", NAMESPACE), "spec", "acme", "server") == "https://acme.example.com"


async def test_a_secret_of_another_origin_is_left_alone() -> None:
    async with world(everything) as made:
        await prepared(made)
        mine = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "serving-tls", "namespace": NAMESPACE}}
        await made.create(SECRETS, {**mine, "stringData": {"password": "hay"}})
        await made.create(ISSUERS, issuer())
        await made.create(CERTIFICATES, certificate())
        await made.settle(10)
        assert (await said(made))[:2] == ("False", "SecretInUse")
        assert await issued(made) == {"password": b"hay"}


async def test_an_issuer_of_another_group_is_not_ours() -> None:
    async with world(everything) as made:
        await prepared(made)
        wanted = certificate()
        wanted["spec"]["issuerRef"]["group"] = "elsewhere.example.com"
        await made.create(CERTIFICATES, wanted)
        await made.settle(10)
        assert get(await made.get(CERTIFICATES, "serving", NAMESPACE), "Ready") is None


async def test_webhooks_and_definitions_get_the_ca() -> None:
    async with world(everything) as made:
        await prepared(made)
        from_serving = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/serving"}
        service = {"service": {"name": "hooks", "namespace": NAMESPACE, "path": "/x"}}
        for resource, kind in ((MUTATING, "MutatingWebhookConfiguration"), (VALIDATING, "ValidatingWebhookConfiguration")):
            hooks = [
                {
                    "name": f"{name}.ranch.svc",
                    "clientConfig": service,
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "rules": [
                        {"apiGroups": ["x"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["horses"]},
                    ],
                }
                for name in ("one", "two")
            ]
            config = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": "hooks", "annotations": from_serving},
                "webhooks": hooks,
            }
            await made.create(resource, config)
        definition = _definition(from_serving, service)
        await made.create(CRDS, definition)
        await made.create(ISSUERS, issuer())
        await made.create(CERTIFICATES, certificate())
        await made.settle(30)
        await _all_trust(made)
        # A renewed CA reaches them all.
        await made.delete(SECRETS, "serving-tls", NAMESPACE)
        await made.settle(30)
        await _all_trust(made)


def _definition(annotations: Obj, service: Obj) -> Obj:
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    conversion = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": service}}
    names = {"plural": "horses", "kind": "Horse", "singular": "horse", "listKind": "HorseList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "horses.x.example.com", "annotations": annotations},
        "spec": {"group": "x.example.com", "scope": "Namespaced", "names": names, "versions": versions, "conversion": conversion},
    }


async def _all_trust(made: World) -> None:
    bundle = base64.b64encode((await issued(made))["ca.crt"]).decode()
    for resource in (MUTATING, VALIDATING):
        config = await made.get(resource, "hooks")
        assert [each["clientConfig"]["caBundle"] for each in config["webhooks"]] == [bundle, bundle]
    found = await made.get(CRDS, "horses.x.example.com")
    assert dig(found, "spec", "conversion", "webhook", "clientConfig", "caBundle") == bundle
