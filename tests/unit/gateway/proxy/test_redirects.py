"""Where a cluster may send its clients on to: within itself, or away, but never to something else of ours."""

from __future__ import annotations

import pytest

from remuda.gateway.proxy.cluster_proxy import _opens_shell, moved
from remuda.gateway.server.path_validation import judge

PREFIX, ADDRESS, HOST = "/k8s/clusters/c-m-mine", "10.0.0.1:6443", "remuda.example:8443"


def told(location: str, path: str = "/api/v1/nodes/x", host: str = HOST) -> str:
    return moved(location, PREFIX, ADDRESS, path, host)


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        ("/api/v1/x/", f"{PREFIX}/api/v1/x/"),
        ("/api/v1/x?a=b%20c#d", f"{PREFIX}/api/v1/x?a=b%20c#d"),
        ("https://10.0.0.1:6443/y", f"{PREFIX}/y"),
        ("https://10.0.0.1:6443", f"{PREFIX}/"),
        ("z", f"{PREFIX}/api/v1/nodes/z"),
        ("x/", f"{PREFIX}/api/v1/nodes/x/"),
        ("../w", f"{PREFIX}/api/v1/w"),
        ("?continue=1", f"{PREFIX}/api/v1/nodes/x?continue=1"),
        ("https://login.example/start", "https://login.example/start"),
        ("//elsewhere.example/x", "//elsewhere.example/x"),
    ],
)
def test_within_the_cluster_and_away(location: str, seen: str) -> None:
    assert told(location) == seen


@pytest.mark.parametrize(
    "location",
    [
        "https://remuda.example:8443/k8s/clusters/c-m-other/api/v1/namespaces/prod",
        "https://remuda.example/v3/tokens",
        "http://remuda.example:8443/api",
        "https://REMUDA.example:9999/api",
        "https://below.remuda.example/api",
        "//remuda.example:8443/api",
        "https://remuda.example:8443\\@elsewhere.example/",
        "https://somebody@elsewhere.example/",
        "/\\remuda.example/api",
        "/%2e%2e/%2e%2e/c-m-other/api",
        "https://10.0.0.1:6443/../../c-m-other/api",
        "https://remuda.\texample:8443/api",
        "java\tscript:alert(1)",
        "javascript:alert(1)",
        "data:text/html,x",
        "https://[::1",
        "",
    ],
)
def test_what_else_of_ours_is_nowhere(location: str) -> None:
    assert told(location) == ""


def test_no_number_of_dots_leads_out_of_the_cluster() -> None:
    for dots in range(1, 12):
        for end in ("k8s/clusters/c-m-other/api", "v3/tokens"):
            assert told("../" * dots + end).startswith(f"{PREFIX}/")
            assert told("/" + "../" * dots + end).startswith(f"{PREFIX}/")


def test_without_a_matching_host_no_redirect_is_passed_on() -> None:
    assert told("https://login.example/", host="") == ""
    assert told("/x", host="[::1]:8443") == f"{PREFIX}/x"
    assert told("https://[::1]/x", host="[::1]:8443") == ""


@pytest.mark.parametrize("path", ["pods/x/exec", "pods/x/%65xec", "p%6fds/x/attach/", "pods/x/ex%65c?command=sh"])
def test_a_shell_is_one_however_it_is_spelled(path: str) -> None:
    assert _opens_shell(judge(f"{PREFIX}/api/v1/namespaces/default/{path}").segments[3:])
    assert not _opens_shell(judge(f"{PREFIX}/api/v1/namespaces/default/pods/exec/log").segments[3:])
