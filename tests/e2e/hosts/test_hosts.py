"""Hosts on this machine: what they are to those inside, that they outlive who made them, and that nothing of them is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.hosts import HostError, HostExists, NoSuchHost, NotRunning, addresses, host_directory, processes
from remuda.hosts.host_directory import HostDirectory
from remuda.hosts.hosts import Hosts
from tests.e2e.serving import eventually

from .conftest import HostKit, command_of

pytestmark = pytest.mark.story

NOTIFIER = """#!/usr/bin/env python3
import os, signal, socket, sys, time
def tell(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text.encode(), "\\0" + os.environ["NOTIFY_SOCKET"][1:])
print("coming up", flush=True)
if os.path.exists("wait"):
    while os.path.exists("wait"):
        time.sleep(0.02)
tell("READY=1\\nSTATUS=well")
signal.pause()
"""


def state(kit: HostKit, name: str, unit: str = "u", wanted: str = "ActiveState") -> str:
    return kit.hosts.get(name).systemctl("show", "-p", wanted, "--value", unit, seconds=60)[1]


def test_a_host_has_a_name_an_address_and_a_root_of_its_own(kit: HostKit) -> None:
    one, two = kit.create("one"), kit.create("two")
    assert one.record.address != two.record.address
    assert {one.record.address[:4], two.record.address[:4]} == {"127."}
    done = kit.run(one, "hostname; hostname -i; sudo -E A=b sh -c 'echo $A'; echo \"$HOME\"; command -v systemctl; pwd")
    assert done.stdout.split() == [
        "one",
        one.record.address,
        "b",
        f"{one.place.root}/root",
        f"{one.place.directory}/bin/systemctl",
        str(one.place.root),
    ]
    with pytest.raises(HostExists):
        kit.create("one")
    with pytest.raises(HostError, match="is the address of the host in"):
        Hosts(kit.directory).create("three", one.record.address)
    with pytest.raises(HostError, match="is no name"):
        kit.hosts.create("../three")
    assert [host.name for host in kit.hosts.all()] == ["one", "two"]


def test_an_address_in_use_is_not_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.63.255.9", 0)), pytest.raises(HostError, match=r"another program listens on 127\.63\.255\.9"):
        addresses.claim(HostDirectory(tmp_path), "127.63.255.9")
    assert addresses.claim(HostDirectory(tmp_path), "127.63.255.9") == "127.63.255.9"
    addresses.release(HostDirectory(tmp_path), "127.63.255.9")


def test_a_unit_is_ready_when_it_says_so_and_comes_again_when_it_dies(kit: HostKit) -> None:
    host = kit.create("one")
    root = host.place.root
    (root / "n.py").write_text(NOTIFIER)
    (root / "n.py").chmod(0o755)
    (root / "wait").touch()
    (root / "env").write_text('FROM_FILE="a b"\n')
    kit.unit(
        host,
        "u",
        f"Type=notify\nRestart=always\nRestartSec=100ms\nEnvironmentFile={root}/env\nEnvironmentFile=-/nowhere\n"
        f"ExecStartPre=-/bin/false\nExecStartPre=/bin/sh -c 'echo pre ${{FROM_FILE}}'\nExecStart={root}/n.py\n"
        "ExecReload=/bin/sh -c 'echo reloaded $MAINPID'\nExecStop=/bin/sh -c 'echo stopping'\nTimeoutStartSec=0",
    )
    assert host.systemctl("enable", "u")[0] == 0
    assert host.systemctl("--no-block", "start", "u")[0] == 0
    eventually(lambda: state(kit, "one") == "activating", 60)
    assert host.systemctl("is-active", "u")[:2] == (3, "activating")
    (root / "wait").unlink()
    assert host.systemctl("start", "u", seconds=60) == (0, "", "")
    assert state(kit, "one", wanted="StatusText") == "well"
    first = state(kit, "one", wanted="MainPID")
    os.kill(int(first), signal.SIGKILL)
    eventually(lambda: state(kit, "one", wanted="ActiveState,NRestarts").split() == ["active", "1"], 60)
    assert state(kit, "one", wanted="MainPID") != first
    assert host.systemctl("reload", "u", seconds=60)[0] == 0
    assert host.systemctl("stop", "u", seconds=60)[0] == 0
    assert host.systemctl("is-active", "u")[:2] == (3, "inactive")
    words = ("pre a b", "coming up", "reloaded", "stopping", "which does not matter", "killed by SIGKILL")

    def unsaid() -> list[str]:
        said = kit.run(host, "journalctl -u u").stdout
        return [each for each in words if each not in said]

    # What a program said last may be on its way to the journal when it has ended.
    eventually(lambda: unsaid() == [], 60)


def test_a_unit_that_can_not_start_says_why(kit: HostKit) -> None:
    host = kit.create("one")
    kit.unit(host, "u", "Type=exec\nExecStart=/nowhere/at/all")
    code, _, err = host.systemctl("start", "u", seconds=60)
    assert code == 1
    assert "/nowhere/at/all can't be started" in err
    assert host.systemctl("is-failed", "u")[:2] == (0, "failed")
    assert host.systemctl("reset-failed", "u")[0] == 0
    assert host.systemctl("is-failed", "u")[:2] == (1, "inactive")
    assert host.systemctl("start", "other")[0] == 5
    kit.unit(host, "v", "Type=notify\nExecStart=/bin/sh -c 'exit 7'")
    assert "ended before it was ready (exited with 7)" in host.systemctl("start", "v", seconds=60)[2]
    kit.unit(host, "w", "Type=notify\nTimeoutStartSec=200ms\nTimeoutStopSec=200ms\nExecStart=/bin/sleep 1000")
    assert "not ready within 0.2 s" in host.systemctl("start", "w", seconds=60)[2]
    assert kit.only_its_init(host), kit.commands_of(host)


def test_a_command_line_that_is_none_fails_and_can_be_corrected(kit: HostKit) -> None:
    host = kit.create("one")
    kit.unit(host, "u", "ExecStart=/bin/sh -c 'never closed")
    assert "never closed" in host.systemctl("start", "u", seconds=60)[2]
    kit.unit(host, "u", "ExecStart=/bin/sleep 1000")
    assert host.systemctl("start", "u", seconds=60)[0] == 0
    assert host.systemctl("nonsense", seconds=60)[0] == 1


@pytest.mark.parametrize(("mode", "left"), [("control-group", 0), ("mixed", 0), ("process", 2)])
def test_what_a_stop_takes_along(kit: HostKit, mode: str, left: int) -> None:
    host = kit.create("one")
    # One child in its session, one that left it and lost its parent; one of them does not listen.
    script = 'trap "" TERM; (sleep 1000 & setsid sleep 1000 &) ; trap - TERM; exec sleep 1000'
    kit.unit(host, "u", f"KillMode={mode}\nTimeoutStopSec=1s\nExecStart=/bin/sh -c '{script}'")
    assert host.systemctl("start", "u", seconds=60)[0] == 0
    # Three there are already while the shell still starts them.
    asleep = ["sleep 1000"] * 3
    eventually(lambda: [each.strip() for pid, each in kit.commands_of(host).items() if pid != host.pid] == asleep, 60)
    assert state(kit, "one", wanted="TasksCurrent") == "3"
    assert host.systemctl("stop", "u", seconds=60)[0] == 0
    # Who was killed needs a moment to be gone.
    eventually(lambda: len(kit.processes_of(host) - {host.pid}) <= left, 60)
    assert len(kit.processes_of(host) - {host.pid}) == left


def test_a_oneshot_runs_to_its_end_and_may_remain(kit: HostKit) -> None:
    host = kit.create("one")
    kit.unit(
        host, "u", "Type=oneshot\nExecStart=/bin/sh -c 'echo a >> out'\nExecStart=/bin/sh -c 'echo b >> out'\nRemainAfterExit=yes"
    )
    assert host.systemctl("start", "u", seconds=60)[0] == 0
    assert (host.place.root / "out").read_text() == "a\nb\n"
    assert host.systemctl("is-active", "u")[0] == 0
    assert host.systemctl("stop", "u", seconds=60)[0] == 0


def test_a_host_outlives_its_creator_and_restarts_with_its_units(kit: HostKit) -> None:
    command = [sys.executable, "-m", "remuda", "host"]
    data = ["--data-dir", str(kit.directory.parent)]
    subprocess.run([*command, "create", *data, "one"], check=True, timeout=120)
    host = kit.hosts.get("one")
    kit.made.append(host)
    kit.unit(host, "u", "ExecStart=/bin/sleep 1000")
    kit.unit(host, "v", "ExecStart=/bin/sleep 1000")
    assert host.systemctl("enable", "--now", "u", seconds=60)[0] == 0
    assert host.systemctl("start", "v", seconds=60)[0] == 0
    told = subprocess.run([*command, "ls", *data, "-o", "json"], check=True, capture_output=True, timeout=120)
    assert json.loads(told.stdout)[0]["units"] == {"u": "active", "v": "active"}
    subprocess.run([*command, "stop", *data, "one"], check=True, timeout=120)
    assert kit.processes_of(host) == set()
    assert not kit.hosts.get("one").running
    subprocess.run([*command, "start", *data, "one"], check=True, timeout=120)
    eventually(lambda: state(kit, "one") == "active", 60)
    assert state(kit, "one", "v") == "inactive"
    before = kit.hosts.get("one").pid
    assert kit.run(host, "reboot").returncode == 0
    eventually(lambda: kit.hosts.get("one").pid not in (0, before), 60)

    def is_up_again() -> bool:
        # Its init is there before it listens.
        with contextlib.suppress(NotRunning):
            return state(kit, "one") == "active"
        return False

    eventually(is_up_again, 60)
    ran = subprocess.run([*command, "exec", *data, "one", "--", "sh", "-c", "exit 7"], check=False, timeout=120)
    assert ran.returncode == 7

    def last_line() -> bytes:
        return subprocess.run(
            [*command, "logs", *data, "one", "u", "-n", "1"], check=True, capture_output=True, timeout=120
        ).stdout

    # It is active a moment before it is noted.
    eventually(lambda: b"Started u." in last_line(), 60)
    subprocess.run([*command, "rm", *data, "one"], check=True, timeout=120)
    with pytest.raises(NoSuchHost):
        kit.hosts.get("one")
    gone = subprocess.run([*command, "stop", *data, "one"], check=False, capture_output=True, timeout=120)
    assert (gone.returncode, gone.stderr) == (3, b"remuda: there is no host one\n")


def test_a_host_whose_init_was_killed_is_found_and_swept(kit: HostKit) -> None:
    host = kit.create("one")
    kit.unit(host, "u", "KillMode=process\nExecStart=/bin/sh -c '(setsid sleep 1000 &); exec sleep 1000'")
    assert host.systemctl("enable", "--now", "u", seconds=60)[0] == 0
    # Somebody runs something in it by hand, which no init looks after.
    by_hand = subprocess.Popen(["sleep", "1000"], env=host.environment(), start_new_session=True)
    eventually(lambda: len(kit.processes_of(host)) == 4, 60)
    os.kill(host.pid, signal.SIGKILL)
    eventually(lambda: not kit.hosts.get("one").running, 60)
    again = kit.hosts.start("one")
    assert by_hand.wait(60) == -signal.SIGKILL
    eventually(lambda: state(kit, "one") == "active", 60)
    eventually(lambda: len(kit.processes_of(again)) == 3, 60)


def alive_below(pid: int) -> set[processes.ProcessIdentity]:
    """Told apart from who gets their numbers later."""
    return {found for each in processes.descendants(pid) if (found := processes.identify(each)) is not None}


def test_a_power_cut_kills_all_processes_at_once(kit: HostKit) -> None:
    host = kit.create("one")
    # One of them has nothing of the host in its environment, and no parent.
    script = 'trap "echo asked > asked" TERM; (env -i setsid sleep 1000.5 &); touch up; while :; do sleep 0.1; done'
    kit.unit(host, "u", f"KillMode=process\nRestart=always\nExecStart=/bin/sh -c '{script}'\nExecStopPost=/bin/touch asked")
    assert host.systemctl("enable", "--now", "u", seconds=60)[0] == 0
    eventually((host.place.root / "up").exists, 60)
    before = alive_below(host.pid)
    eventually(lambda: any("1000.5" in command_of(pid) for pid in processes.descendants(host.pid)), 60)
    before |= alive_below(host.pid)
    assert not kit.hosts.kill("one").running
    assert not [each for each in before if processes.is_alive(each)]
    assert not (host.place.root / "asked").exists()
    kit.hosts.start("one")
    eventually(lambda: state(kit, "one") == "active", 60)


def test_a_foreign_process_is_not_taken_for_the_init(kit: HostKit) -> None:
    host = kit.create("one")
    kit.hosts.stop("one")
    other = subprocess.Popen(["sleep", "1000"])
    try:
        known = processes.identify(other.pid)
        assert known is not None
        note = {"pid": other.pid, "started": known.started - 1, "boot": known.boot}
        host_directory.write_json(host.place.identity, note)
        assert not kit.hosts.get("one").running
        kit.hosts.stop("one", 5)
        assert other.poll() is None
        assert kit.hosts.start("one").pid != other.pid
    finally:
        other.kill()
        other.wait()


def test_an_init_that_hangs_is_killed_with_all_it_has(kit: HostKit) -> None:
    host = kit.create("one")
    kit.unit(host, "u", "ExecStart=/bin/sh -c 'trap \"\" TERM; setsid sleep 1000 & sleep 1000'\nTimeoutStopSec=infinity")
    assert host.systemctl("start", "u", seconds=60)[0] == 0
    os.kill(host.pid, signal.SIGSTOP)
    kit.hosts.stop("one", 1)
    assert kit.processes_of(host) == set()
    kit.hosts.remove("one")
    assert not host.place.directory.exists()


def test_a_flood_of_output_is_bounded(kit: HostKit) -> None:
    host = kit.create("one")
    kit.unit(host, "u", "ExecStart=/bin/sh -c 'yes $(printf %0200d 0) | head -c 30000000; touch done; exec sleep 1000'")
    assert host.systemctl("start", "u", seconds=60)[0] == 0
    eventually((host.place.root / "done").exists, 120)
    assert sum(path.stat().st_size for path in host.place.logs.iterdir()) < 20 << 20
    assert host.systemctl("is-active", "u", seconds=60)[0] == 0


def test_commands_at_once_do_not_get_in_each_others_way(kit: HostKit) -> None:
    program = (
        "import sys; from pathlib import Path; from remuda.hosts.hosts import Hosts; Hosts(Path(sys.argv[1])).create(sys.argv[2])"
    )
    names = ["a", "b", "a", "c"]
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(kit.directory), name], stderr=subprocess.DEVNULL) for name in names
    ]
    assert sorted(process.wait(120) for process in started) == [0, 0, 0, 1]
    hosts = kit.hosts.all()
    kit.made += hosts
    assert [host.name for host in hosts] == ["a", "b", "c"]
    assert len({host.record.address for host in hosts}) == 3


def test_a_host_may_lie_deep(tmp_path: Path) -> None:
    kit = HostKit(tmp_path / ("a" * 100) / ("b" * 100) / "hosts")
    try:
        host = kit.create("one")
        kit.unit(host, "u", f"Type=notify\nExecStart={sys.executable} {host.place.root}/n.py")
        (host.place.root / "n.py").write_text(NOTIFIER)
        assert host.systemctl("start", "u", seconds=60) == (0, "", "")
    finally:
        kit.clean_up()
