"""Webhook certificates over the years: always valid, always known before they are shown."""

from __future__ import annotations

import asyncio

from cryptography import x509

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.runtime.webhook_certificates import CertificateLifetimes, SharedCertificates, WebhookCertificates, renewed

NAMES = ("hooks.remuda.svc", "127.0.0.1")
DAY = 86400.0
LIVES = CertificateLifetimes(authority=300 * DAY, serving=30 * DAY, settle=3600)


def signed_by_known(material: WebhookCertificates, bundle: bytes) -> bool:
    leaf = x509.load_pem_x509_certificate(material.certificate)
    for authority in x509.load_pem_x509_certificates(bundle):
        if leaf.issuer == authority.subject:
            leaf.verify_directly_issued_by(authority)
            return True
    return False


def test_for_years_it_is_valid_and_was_known_before_it_was_shown() -> None:
    entropy, now = Entropy(1), 1_800_000_000.0
    material = renewed(None, NAMES, now, entropy, LIVES)
    assert renewed(material, NAMES, now, entropy, LIVES) is material
    first = material
    previous = material.bundle
    leaves, bundles = {material.certificate}, {material.bundle}
    for _ in range(2 * 365 * 2):
        now += DAY / 2
        material = renewed(material, NAMES, now, entropy, LIVES)
        leaf = x509.load_pem_x509_certificate(material.certificate)
        assert leaf.not_valid_before_utc.timestamp() <= now < leaf.not_valid_after_utc.timestamp()
        assert signed_by_known(material, previous), "somebody who has not heard of the change yet would refuse it"
        previous = material.bundle
        leaves.add(material.certificate)
        bundles.add(material.bundle)
        assert len(material.authorities) <= 2
    assert first.certificate != material.certificate
    assert 30 < len(leaves) < 45
    assert 5 < len(bundles) < 9


def test_other_names_need_another_certificate_but_no_other_authority() -> None:
    entropy, now = Entropy(1), 1_800_000_000.0
    first = renewed(None, NAMES, now, entropy, LIVES)
    second = renewed(first, ("other.svc",), now, entropy, LIVES)
    assert second.certificate != first.certificate and second.authorities == first.authorities


def test_what_does_not_fit_together_is_made_anew() -> None:
    entropy, now = Entropy(1), 1_800_000_000.0
    first, second = (renewed(None, NAMES, now, entropy, LIVES) for _ in range(2))
    assert WebhookCertificates.from_data(first.to_data()) == first
    assert WebhookCertificates.from_data({**first.to_data(), "tls.key": second.to_data()["tls.key"]}) is None
    assert WebhookCertificates.from_data({**first.to_data(), "ca.crt": ""}) is None
    assert WebhookCertificates.from_data({**first.to_data(), "tls.crt": "bm90aGluZw=="}) is None
    assert WebhookCertificates.from_data({}) is None


async def test_replicas_that_start_together_agree() -> None:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    client = InProcessClient(server)
    shared = [
        SharedCertificates(
            client,
            clock,
            Entropy(number),
            namespace="default",
            name="hooks",
            names=NAMES,
            lives=CertificateLifetimes(3000, 300, 10),
        )
        for number in range(4)
    ]

    async def together() -> list[WebhookCertificates]:
        asked = [asyncio.create_task(each.current()) for each in shared]
        await clock.advance(5)
        return [task.result() for task in asked]

    found = await together()
    assert len({material.certificate for material in found}) == 1
    await clock.advance(250)
    later = await together()
    assert len({material.certificate for material in later}) == 1 and later[0].certificate != found[0].certificate
    await client.patch(SECRETS, "hooks", {"data": {"tls.key": "YnJva2Vu"}}, "default")
    assert signed_by_known(await shared[0].current(), (await shared[1].current()).bundle)
    await server.close()
