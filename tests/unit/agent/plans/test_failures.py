"""The lines of a failed instruction's output that reach the server."""

from __future__ import annotations

import pytest

from remuda.agent.plans import failures

K3S = b"""\
[INFO]  systemd: Starting k3s
Job for k3s.service failed because the control process exited with error code.
See "systemctl status k3s.service" and "journalctl -xeu k3s.service" for details.
time="2026-01-01T00:00:00Z" level=info msg="Starting k3s v1.34.1+k3s1"
time="2026-01-01T00:00:00Z" level=fatal msg="Error: flag provided but not defined: -system-default-registry"
k3s.service: Main process exited, code=exited, status=1/FAILURE
k3s.service: Failed with result 'exit-code'.
Failed to start k3s.service - Lightweight Kubernetes.
k3s.service: Scheduled restart job, restart counter is at 5.
"""
REMUDA = b"""\
Jan 01 00:00:00 h0 remuda[7]: Started remuda-server.service.
Jan 01 00:00:00 h0 remuda[7]: remuda: config.yaml: write-kubeconfig-mode is like 0600
Jan 01 00:00:00 h0 systemd[1]: remuda-server.service: Main process exited, code=exited, status=1/FAILURE
[ERROR]  remuda-server does not start
"""
OF_OUR_HOSTS = b"""\
2026-11-19T07:15:02Z remuda: write-kubeconfig-mode is like 0600, not 'rw-------'
2026-11-19T07:15:02Z {"level":"error","msg":"setting up serving from embedded etcd failed."}
2026-11-19T07:15:03Z -- remuda-server.service: it ended before it was ready (exited with 2)
2026-11-19T07:15:08Z remuda: write-kubeconfig-mode is like 0600, not 'rw-------'
2026-11-19T07:15:08Z -- Failed to start Kubernetes by Remuda (server): it ended before it was ready (exited with 2)
[ERROR] remuda-server does not start
"""


@pytest.mark.parametrize(
    ("stdout", "stderr", "sentence"),
    [
        (b"", K3S, "flag provided but not defined: -system-default-registry"),
        (b"", REMUDA, "[ERROR]  remuda-server does not start: remuda: config.yaml: write-kubeconfig-mode is like 0600"),
        (b"", OF_OUR_HOSTS, "does not start: remuda: write-kubeconfig-mode is like 0600, not 'rw-------'"),
        (b"downloading\nno space left on device\n", b"", "no space left on device"),
        (b"[INFO]  installing\n", b"tar: short read\n", "tar: short read"),
        (b"[INFO]  installing\n", b"error: disk is full\ncleaning up\n", "error: disk is full"),
        (b"", b"", "exit status 1"),
    ],
)
def test_the_sentence_has_the_reason(stdout: bytes, stderr: bytes, sentence: str) -> None:
    first = failures.reason("instruction 0 (install)", "exit status 1", stdout, stderr).splitlines()[0]
    assert first.startswith("instruction 0 (install): exit status 1")
    assert sentence in first


def test_the_lines_after_it_are_the_meaningful_ones() -> None:
    assert failures.reason("x", "exit status 1", b"", REMUDA).splitlines()[1:] == [
        "remuda: config.yaml: write-kubeconfig-mode is like 0600",
        "[ERROR]  remuda-server does not start",
    ]
    many = b"".join(b"line %d\n" % number for number in range(100))
    assert failures.reason("x", "exit status 1", b"", many).splitlines()[1:] == [f"line {number}" for number in range(88, 100)]


def test_a_reason_and_a_tail_are_bounded() -> None:
    endless = b"error " + b"x" * 1_000_000
    assert len(failures.reason("x", "exit status 1", b"", b"a\n" + endless)) <= failures.LONGEST_REASON
    lines = b"some line of output\n" * 100_000
    assert len(failures.tail(lines, lines)) <= failures.LONGEST_TAIL
    assert failures.tail(lines, b"the end") == failures.tail(lines, b"") + b"the end\n"
    assert failures.tail(b"", b"") == b""


@pytest.mark.parametrize(
    ("output", "unit"),
    [
        (K3S, "k3s.service"),
        (b"Job for a b.service failed", ""),
        (b"Job for ;reboot.service failed", ""),
        (b"all is well\n", ""),
    ],
)
def test_a_unit_that_did_not_start_is_named(output: bytes, unit: str) -> None:
    assert failures.unit_that_failed(output) == unit
