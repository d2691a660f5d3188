"""What an agent says of its cluster: only what has its form is read, and what is new is told from what is not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from remuda.gateway.agents.agent_claims import (
    LONGEST_PARAMS,
    BadParams,
    Change,
    Stored,
    change_of,
    host_of,
    parse_params,
    subject_of,
)
from remuda.kube import certificates
from remuda.kube.clock import Entropy, VirtualClock


def authority() -> str:
    made = certificates.sign_authority(certificates.new_key(Entropy()), VirtualClock(), Entropy())
    return base64.b64encode(certificates.certificate_pem(made)).decode()


_NOTHING: tuple[Any, ...] = ("", " ", None, 7, {})
CA, OTHER_CA = authority(), authority()


def header(**cluster: Any) -> str:
    said = {"address": "10.43.0.1:443", "token": "eyJ.a.b", "caCert": CA, **cluster}
    return base64.b64encode(json.dumps({"cluster": said}).encode()).decode()


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.43.0.1:443", "10.43.0.1"),
        ("[fd00::1]:6443", "fd00::1"),
        ("kubernetes.default.svc:443", "kubernetes.default.svc"),
        ("api:1", "api"),
    ],
)
def test_what_an_agent_says(address: str, host: str) -> None:
    found = parse_params(header(address=address))
    assert (found.endpoint, found.token, found.ca) == (f"https://{address}", "eyJ.a.b", CA)
    assert host_of(found.endpoint) == (host, address)


@pytest.mark.parametrize(
    "address",
    [
        "10.43.0.1",
        "10.43.0.1:0",
        "10.43.0.1:65536",
        "10.43.0.1:0443",
        "10.43.0.01:443",
        "10.43.0.1:443/x",
        "user@10.43.0.1:443",
        "fd00::1:443",
        "[10.43.0.1]:443",
        "[fd00::1%eth0]:443",
        "[fd00::1]",
        ":443",
        "a b:443",
        "-a:443",
        "a..b:443",
        "a\r\nb:443",
        "https://a:443",
        f"{'a' * 64}:443",
        "ä:443",
    ],
)
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(BadParams, match="host:port"):
        parse_params(header(address=address))


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "%%%",
        "e30=",
        base64.b64encode(b"[]").decode(),
        base64.b64encode(b'{"cluster": []}').decode(),
        base64.b64encode(b'{"node": {"customConfig": {}}}').decode(),
        "A" * (LONGEST_PARAMS + 4),
        *(header(**{name: value}) for name in ("address", "token", "caCert") for value in _NOTHING),
        header(token="a b"),
        header(token="a\r\nX-Evil: 1"),
        header(token="a" * 20_000),
        header(caCert="not base64"),
        header(caCert=base64.b64encode(b"no certificate").decode()),
        header(caCert=base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").decode()),
        header(caCert=CA + "A" * 90_000),
    ],
)
def test_what_has_not_its_form_is_refused_without_being_repeated(sent: str) -> None:
    with pytest.raises(BadParams) as caught:
        parse_params(sent)
    assert len(str(caught.value)) < 80 and "Evil" not in str(caught.value)


@pytest.mark.parametrize(
    ("stored", "change"),
    [
        (None, Change.FIRST),
        (Stored("https://10.43.0.1:443", "eyJ.a.b", CA), Change.SAME),
        (Stored("https://10.43.0.1:443", "eyJ.a.b", base64.encodebytes(base64.b64decode(CA)).decode()), Change.SAME),
        (Stored("https://10.43.0.1:443", "eyJ.a.c", CA), Change.TOKEN),
        (Stored("https://10.43.0.1:443", "", CA), Change.TOKEN),
        (Stored("https://10.43.0.2:443", "eyJ.a.b", CA), Change.PLACE),
        (Stored("https://10.43.0.1:443", "eyJ.a.b", OTHER_CA), Change.PLACE),
        (Stored("https://10.43.0.1:443", "eyJ.a.b", ""), Change.PLACE),
        (Stored("", "eyJ.a.b", CA), Change.PLACE),
    ],
)
def test_what_is_new(stored: Stored | None, change: Change) -> None:
    assert change_of(stored, parse_params(header())) is change


def test_nothing_prints_a_token() -> None:
    assert "eyJ" not in repr(parse_params(header())) + repr(Stored("https://a:1", "eyJ.a.b", CA))


def test_whom_a_token_says_it_is_for() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "system:serviceaccount:a:b"}).encode()).decode().rstrip("=")
    assert subject_of(f"x.{claims}.y") == "system:serviceaccount:a:b"
    assert [subject_of(token) for token in ("", "opaque", "a.b.c", "a.e30.c", "a.!.c")] == [""] * 5
