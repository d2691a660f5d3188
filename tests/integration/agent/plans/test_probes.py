"""Probes, and the web they are asked over."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

import pytest

from remuda.agent.http_client import proxy_for
from remuda.agent.plans.plan import HttpGet, Probe
from remuda.agent.plans.probes import Prober, ProbeStatus, after, decode, encode
from tests.integration.agent.builders import FixedClock, server


def test_counts_stop_at_their_thresholds() -> None:
    probe = Probe(success_threshold=2, failure_threshold=3)
    status = ProbeStatus()
    seen = []
    for answer in (True, True, True, False, False, False, False, True):
        status = after(status, probe, answer)
        seen.append((status.healthy, status.successes, status.failures))
    assert seen == [
        (False, 1, 0),
        (True, 2, 0),
        (True, 2, 0),
        (True, 0, 1),
        (True, 0, 2),
        (False, 0, 3),
        (False, 0, 3),
        (False, 1, 0),
    ]


def test_statuses_leave_out_what_is_zero() -> None:
    data = encode({"b": ProbeStatus(True, 1, 0), "a": ProbeStatus(False, 0, 2)})
    assert data == b'{"a":{"failureCount":2},"b":{"healthy":true,"successCount":1}}'
    assert decode(data) == {"b": ProbeStatus(True, 1, 0), "a": ProbeStatus(False, 0, 2)}
    assert encode({}) == b"{}"
    assert decode(b"broken") == {}


def respond(request: BaseHTTPRequestHandler, _: bytes) -> tuple[int, dict[str, str], bytes]:
    if request.path == "/ok":
        good = request.headers["User-Agent"].startswith("kube-probe/") and request.headers["Accept"] == "*/*"
        return 204 if good else 400, {}, b""
    if request.path == "/moved":
        return 302, {"Location": "/ok"}, b""
    if request.path == "/away":
        return 302, {"Location": "http://localhost:1/ok"}, b""
    if request.path == "/round":
        return 302, {"Location": "/round"}, b""
    return 500, {}, b""


@pytest.mark.parametrize(
    ("path", "well"), [("/ok", True), ("/moved", True), ("/away", False), ("/round", False), ("/bad", False)]
)
def test_only_success_on_the_same_host_is_well(path: str, well: bool) -> None:
    with server(respond) as url:
        assert Prober(FixedClock()).ask(Probe(http_get=HttpGet(url + path), timeout=60)) is well


def test_no_listener_and_missing_certificates_fail_the_probe() -> None:
    prober = Prober(FixedClock())
    assert not prober.ask(Probe(http_get=HttpGet("http://127.0.0.1:1/"), timeout=2))
    assert not prober.ask(Probe(http_get=HttpGet("https://127.0.0.1:1/", ca_cert="/no/ca"), timeout=2))
    assert not prober.ask(Probe(http_get=HttpGet("nonsense"), timeout=2))


def test_probes_wait_only_after_a_run() -> None:
    clock = FixedClock()
    with server(respond) as url:
        probes = {
            "a": Probe(initial_delay=7, timeout=60, http_get=HttpGet(url + "/ok")),
            "b": Probe(timeout=60, http_get=HttpGet(url + "/bad")),
        }
        for delay, waited in ((False, 0), (True, 7)):
            found = Prober(clock).ask_all(probes, {}, delay, threading.Event())
            assert found == {"a": ProbeStatus(True, 1, 0), "b": ProbeStatus(False, 0, 1)}
            assert clock.ticks == waited


@pytest.mark.parametrize(
    ("url", "exceptions", "proxied"),
    [
        ("https://reg.example/x", "", True),
        ("https://127.0.0.1/x", "", False),
        ("https://localhost/x", "", False),
        ("https://reg.example/x", "*", False),
        ("https://reg.example/x", "example", False),
        ("https://a.reg.example/x", ".reg.example", False),
        ("https://reg.example/x", ".reg.example", True),
        ("https://badexample/x", "example", True),
        ("https://10.1.2.3/x", "10.0.0.0/8,broken/99", False),
        ("https://11.1.2.3/x", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443/x", "10.1.2.3:443", True),
        ("https://10.1.2.3:6443/x", "10.1.2.3", False),
    ],
)
def test_proxies_are_used_as_go_uses_them(url: str, exceptions: str, proxied: bool) -> None:
    found = proxy_for(urlsplit(url), {"HTTPS_PROXY": "proxy:3128", "no_proxy": exceptions})
    assert (found is not None and (found.hostname, found.port) == ("proxy", 3128)) is proxied
    assert proxy_for(urlsplit("http://reg.example"), {"HTTPS_PROXY": "proxy:3128"}) is None
