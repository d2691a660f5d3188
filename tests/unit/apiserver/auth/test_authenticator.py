"""Credentials of a request: who is found, who is refused, and what may be asked without any."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.auth.authenticator import BadCredentials, Chain, Credentials, Identity, anonymous_allowed, bearer_token
from remuda.apiserver.auth.client_certificates import CertificateAuthenticator
from remuda.apiserver.keys.pki import Pki
from remuda.kube.authorization.users import User
from remuda.kube.clock import Entropy, VirtualClock
from tests.unit.certificates import issue_client


class Known:
    """Knows the token `good`, and whose tokens starting with `own-` are its kind."""

    async def identify(self, credentials: Credentials) -> Identity | None:
        if credentials.bearer.startswith("own-"):
            raise BadCredentials("revoked")
        return Identity(User("known", groups=("g",))) if credentials.bearer == "good" else None


CHAIN = Chain([Known()], ["api"])


@pytest.mark.parametrize(
    "path",
    ["/", "/api", "/version", "/healthzz", "/health", "/metrics", "/livez/../api/v1/secrets", "/healthz//x",
     "/readyz/%2e%2e/api", "/api/healthz", "healthz", ""],
)  # fmt: skip
def test_anonymous_requests_are_for_health_only(path: str) -> None:
    assert not anonymous_allowed(path)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/", "/healthz/etcd"])
def test_health_needs_no_credential(path: str) -> None:
    assert anonymous_allowed(path)


async def test_no_credentials_are_no_user() -> None:
    assert await CHAIN.identify(Credentials()) is None


@pytest.mark.parametrize(("token", "why"), [("bad", "invalid bearer token"), ("own-x", "[invalid bearer token, revoked]")])
async def test_a_bad_token_is_never_anonymous(token: str, why: str) -> None:
    with pytest.raises(BadCredentials) as caught:
        await CHAIN.identify(Credentials(bearer=token))
    assert (caught.value.code, caught.value.message, caught.value.why) == (401, "Unauthorized", why)
    assert why not in str(caught.value.status()), "the client is not told"


async def test_a_known_user_is_authenticated() -> None:
    found = await CHAIN.identify(Credentials(bearer="good"))
    assert found is not None
    assert found.user == User("known", groups=("g", "system:authenticated"))


async def test_a_credential_without_audience_is_for_this_api_only() -> None:
    found = await CHAIN.identify(Credentials(bearer="good", audiences=("api", "x")))
    assert found is not None
    assert found.audiences == ("api",)
    with pytest.raises(BadCredentials):
        await CHAIN.identify(Credentials(bearer="good", audiences=("x",)))


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer x", "x"),
        ("bearer x", "x"),
        ("  Bearer x  ", "x"),
        ("Bearer x y", "x"),
        ("Bearer  x", ""),
        ("Bearer", ""),
        ("Basic x", ""),
        ("", ""),
        ("Bearerx", ""),
    ],
)
def test_bearer_header(header: str, token: str) -> None:
    assert bearer_token(header) == token


def protocol(token: bytes) -> str:
    return "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(token).decode().rstrip("=")


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (f"v4.channel.k8s.io, {protocol(b'abc')}", "abc"),
        (f"{protocol(b'a')}, {protocol(b'b')}", ""),
        (protocol(b"\xff"), ""),
        ("base64url.bearer.authorization.k8s.io.!", ""),
        ("v4.channel.k8s.io", ""),
    ],
)
def test_browsers_hide_the_token_in_a_subprotocol(value: str, token: str) -> None:
    assert Credentials.of(None, {"Sec-WebSocket-Protocol": value}).bearer == token


@given(st.text(), st.text())
def test_any_header_is_read_without_failing(authorization: str, protocols: str) -> None:
    Credentials.of(None, {"Authorization": authorization, "Sec-WebSocket-Protocol": protocols})


# -- certificates ------------------------------------------------------------------------------------------------------


def der(pem: bytes) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def pki(tmp_path_factory: pytest.TempPathFactory, clock: VirtualClock) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("pki"), [], clock, Entropy())


async def test_name_and_groups_come_from_the_certificate(pki: Pki, clock: VirtualClock) -> None:
    shown = der(issue_client(pki, "alice", ["dev", "ops"], 600).certificate)
    for _ in range(2):
        found = await Chain([CertificateAuthenticator(clock)], ["api"]).identify(Credentials(shown))
        assert found is not None
        user = found.user
        assert (user.name, user.groups) == ("alice", ("dev", "ops", "system:authenticated"))
        assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")


async def test_a_certificate_that_ends_while_the_connection_lives_is_refused(pki: Pki, clock: VirtualClock) -> None:
    door = CertificateAuthenticator(clock)
    shown = Credentials(der(issue_client(pki, "alice", [], 600).certificate))
    assert await door.identify(shown) is not None
    await clock.advance(601)
    with pytest.raises(BadCredentials) as caught:
        await door.identify(shown)
    assert "has expired" in caught.value.why


async def test_the_servers_own_certificate_is_no_clients(pki: Pki, clock: VirtualClock) -> None:
    with pytest.raises(BadCredentials) as caught:
        await CertificateAuthenticator(clock).identify(Credentials(der(pki.serving_certificate.read_bytes())))
    assert "incompatible key usage" in caught.value.why


async def test_bytes_that_are_no_certificate_are_refused(clock: VirtualClock) -> None:
    with pytest.raises(BadCredentials):
        await CertificateAuthenticator(clock).identify(Credentials(b"0\x03junk"))


async def test_a_good_token_helps_where_the_certificate_is_bad(clock: VirtualClock) -> None:
    chain = Chain([CertificateAuthenticator(clock), Known()], ["api"])
    found = await chain.identify(Credentials(b"junk", "good"))
    assert found is not None
    assert found.user.name == "known"
