"""Certificates that hosts report, and the warnings before they expire."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from remuda.kube import certificates
from remuda.kube.certificates import Authority
from remuda.kube.clock import Entropy, VirtualClock, rfc3339
from remuda.provisioning import well_known
from remuda.provisioning.planner import certificate_expiry
from remuda.provisioning.planner.certificate_expiry import HostCertificate
from remuda.provisioning.planner.snapshot import ClusterSnapshot, Machine, Periodic

from .world import NOW, World, decide, named, running, with_machine, with_node

DAY = 86_400.0
CLIENT, SERVING = "server/tls/client-admin.crt", "server/tls/serving-kube-apiserver.crt"


class Pki:
    def __init__(self) -> None:
        self.clock, self.entropy = VirtualClock(start=NOW), Entropy(1)
        self.key = certificates.new_key(self.entropy)
        self.ca = certificates.sign_authority(self.key, self.clock, self.entropy, "server-ca")

    def leaf(self, name: str, seconds: float, *served: str) -> str:
        authority = Authority(self.ca, self.key)
        key = certificates.new_key(self.entropy)
        subject = certificates.subject(name)
        return line(certificates.sign_leaf(authority, key, subject, int(seconds), served, self.clock, self.entropy))

    def authority(self) -> str:
        return line(certificates.certificate_pem(self.ca))


def line(pem: bytes) -> str:
    return "".join(part for part in pem.decode().splitlines() if not part.startswith("-----"))


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


def printed(*certificates: tuple[str, str]) -> str:
    return "".join(f"{file} {content}\n" for file, content in certificates)


def reporting(picture: ClusterSnapshot, name: str, text: str) -> ClusterSnapshot:
    def changed(each: Machine) -> Machine:
        assert each.node is not None
        return with_node(each, replace(each.node, periodic={"certificates": Periodic(text)}))

    return with_machine(picture, name, changed)


def test_certificates_are_read(pki: Pki) -> None:
    text = printed((SERVING, pki.leaf("kube-apiserver", 90 * DAY, "10.0.0.1")), (CLIENT, pki.leaf("system:admin", 365 * DAY)))
    found = certificate_expiry.of_machine(named(reporting(running(("a", "ecw")), "a", text), "a"))
    assert found == (
        HostCertificate(CLIENT, "system:admin", "client", NOW + 365 * DAY),
        HostCertificate(SERVING, "kube-apiserver", "server", NOW + 90 * DAY),
    )


def test_an_authority_is_told_apart(pki: Pki) -> None:
    text = printed(("server/tls/server-ca.crt", pki.authority()))
    (found,) = certificate_expiry.of_machine(named(reporting(running(("a", "ecw")), "a", text), "a"))
    assert found.is_authority and found.use == "CA"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "server/tls/a.crt \n",
        "server/tls/a.crt bm90IGEgY2VydGlmaWNhdGU=\n",
        f"server/tls/a.crt {'A' * 20_000}\n",
        "a\x1b[2Jb.crt MIIB\n",
        f"a.crt {base64.b64encode(bytes(range(256))).decode()}\n",
    ],
)
def test_a_host_may_print_anything(text: str) -> None:
    picture = reporting(running(("a", "ecw")), "a", text)
    assert certificate_expiry.of_machine(named(picture, "a")) == ()
    decision = decide(picture)
    assert not decision.events and "CertificatesExpiring" not in {each.type for each in decision.conditions}


def test_a_host_can_not_name_more_than_there_may_be(pki: Pki) -> None:
    content = pki.leaf("x", DAY)
    text = printed(*((f"server/tls/{number:03}.crt", content) for number in range(500)))
    assert len(certificate_expiry.of_machine(named(reporting(running(("a", "ecw")), "a", text), "a"))) == 64


def test_the_machines_annotation_has_them_and_they_survive_a_task(pki: Pki) -> None:
    place = World(reporting(running(("a", "ecw")), "a", printed((CLIENT, pki.leaf("system:admin", 365 * DAY)))))
    place.look()
    noted = named(place.picture, "a").annotations[well_known.CERTIFICATES]
    at = rfc3339(NOW + 365 * DAY)
    assert noted == f'[{{"file":"{CLIENT}","subject":"system:admin","use":"client","notAfter":"{at}"}}]'
    silent = reporting(place.picture, "a", "")
    assert certificate_expiry.of_machine(named(silent, "a"))[0].not_after == NOW + 365 * DAY
    assert not decide(silent).machines


@pytest.mark.parametrize("text", ["{", "7", '[{"file":"a"}]', "[7]", '[{"file":"a","subject":"b","use":"c","notAfter":"x"}]'])
def test_a_malformed_annotation_counts_as_none(text: str) -> None:
    assert certificate_expiry.in_annotations({well_known.CERTIFICATES: text}) == ()


@pytest.mark.parametrize(
    ("days", "status", "reason"),
    [
        (91, "False", ""),
        (90, "True", "Within90Days"),
        (30, "True", "Within30Days"),
        (7, "True", "Within7Days"),
        (0, "True", "Expired"),
    ],
)
def test_the_condition_has_the_threshold(pki: Pki, days: int, status: str, reason: str) -> None:
    text = printed((CLIENT, pki.leaf("system:admin", 100 * DAY)), (SERVING, pki.leaf("kube-apiserver", 3650 * DAY, "a")))
    picture = replace(reporting(running(("a", "ecw")), "a", text), now=NOW + (100 - days) * DAY)
    (found,) = (each for each in decide(picture).conditions if each.type == "CertificatesExpiring")
    assert (found.status, found.reason) == (status, reason)
    if status == "True":
        word = "expired" if days == 0 else "expires"
        assert found.message == (
            f"1 certificates of a, the first {word} at {rfc3339(NOW + 100 * DAY)}: {CLIENT} of a (system:admin)"
        )


def test_each_machine_gets_one_event_for_each_threshold(pki: Pki) -> None:
    text = printed((CLIENT, pki.leaf("system:admin", 365 * DAY)))
    picture = reporting(reporting(running(("a", "ec"), ("w", "w")), "a", text), "w", text)
    place, seen = World(picture, seconds=DAY), list[tuple[int, str, str]]()
    for day in range(370):
        decision = place.look()
        seen += [(day, event.machine, event.message) for event in decision.events]
        place.picture = replace(place.picture, now=place.picture.now + DAY)
    at = rfc3339(NOW + 365 * DAY)
    advice = f"at {at}: rotate the cluster's certificates"
    assert [(day, name) for day, name, _ in seen] == [(day, name) for day in (275, 335, 358, 365) for name in ("a", "w")]
    assert seen[0][2] == f"{CLIENT} (system:admin) expires within 90 days, {advice}"
    assert seen[-1][2] == f"{CLIENT} (system:admin) has expired, {advice}"


def test_after_a_rotation_the_warnings_begin_anew(pki: Pki) -> None:
    place = World(reporting(running(("a", "ecw")), "a", printed((CLIENT, pki.leaf("system:admin", 20 * DAY)))))
    assert [event.reason for event in place.look().events] == ["CertificatesExpire"]
    assert not place.look().events
    place.picture = reporting(place.picture, "a", printed((CLIENT, pki.leaf("system:admin", 365 * DAY))))
    decision = place.look()
    assert not decision.events and [each.status for each in decision.conditions if each.type == "CertificatesExpiring"] == [
        "False"
    ]
    place.picture = replace(place.picture, now=NOW + 340 * DAY)
    assert len(place.look().events) == 1


def test_the_replacement_of_an_authority_is_another_advice(pki: Pki) -> None:
    picture = reporting(running(("a", "ecw")), "a", printed(("server/tls/server-ca.crt", pki.authority())))
    (event,) = decide(replace(picture, now=NOW + 3640 * DAY)).events
    assert event.message.endswith("replace the authority")
