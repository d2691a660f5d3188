"""What unit files say, as systemd reads them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from remuda.hosts.units import unitfile
from remuda.hosts.units import unitfile as command_line
from remuda.hosts.units.journal import Journal, numbered, tail
from remuda.hosts.units.service_order import without_circles
from remuda.hosts.units.systemctl import parsed
from remuda.hosts.units.unit_catalog import Catalog, NoSuchUnit, full_name
from remuda.hosts.units.unitfile import NEVER, Unit, UnitError, environment_of, parse, seconds
from remuda.images.installer import scripts_tree
from remuda.kube.clock import VirtualClock

K3S = """
[Unit]
Description=Lightweight Kubernetes
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/etc/systemd/system/k3s.service.env
KillMode=process
Delegate=yes
User=root
# Having non-zero Limit*s causes performance problems
LimitNOFILE=1048576
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStart=/usr/local/bin/k3s \\
    server \\
        '--flag=a b' \\

"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\" e'f g'", ["a b", "c d", "ef g"]),
        (r"a\x41\n \"q\" '\t'", ["aA\n", '"q"', "\t"]),
        (r"sh -c 'grep \d'", ["sh", "-c", r"grep \d"]),
        ("''", [""]),
        ("", []),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert command_line.split(text) == found


def test_a_quotation_mark_must_be_closed() -> None:
    with pytest.raises(command_line.WordError):
        command_line.split("a 'b")


def test_variables_are_one_word_in_braces_and_many_without() -> None:
    known = {"A": "x y", "B": "z"}
    assert command_line.expanded(["$A", "${A}", "-${B}-", "$$A", "$C", "${C}", "$A-"], known) == [
        "x",
        "y",
        "x y",
        "-z-",
        "$A",
        "",
        "$A-",
    ]


def test_specifiers() -> None:
    assert command_line.specified("%n %% %q", {"n": "a.service"}) == "a.service % %q"


def test_the_unit_of_k3s() -> None:
    unit = parse("k3s.service", [K3S])
    assert unit.type == "notify"
    assert unit.environment_files[0] == "-/etc/default/k3s"
    assert unit.kill_mode == "process"
    assert (unit.start_timeout, unit.stop_timeout, unit.restart_after) == (NEVER, 90.0, 5.0)
    assert unit.start[0].text.split()[:2] == ["/usr/local/bin/k3s", "server"]
    assert command_line.split(unit.start[0].text)[-1] == "--flag=a b"
    assert unit.start_pre[0].may_fail
    assert unit.wanted_by == ("multi-user.target",)
    assert dict(unit.limits) == {"NOFILE": "1048576", "CORE": "infinity"}


def test_drop_ins_add_and_forget() -> None:
    unit = parse(
        "a.service",
        ["[Service]\nExecStart=/a\nEnvironment=A=1 'B=2 3'\n", "[Service]\nExecStart=\nExecStart=/b\nEnvironment=C=4\n"],
    )
    assert [command.text for command in unit.start] == ["/b"]
    assert unit.environment == ("A=1", "B=2 3", "C=4")


@pytest.mark.parametrize(
    "text",
    [
        "[Service]\nType=forking\nExecStart=/a\n",
        "[Service]\nExecStart=/a\nRestart=sometimes\n",
        "[Service]\nExecStart=/a\nExecStart=/b\n",
        "[Service]\nExecStart=/a\nRestartSec=soon\n",
        "[Service]\nExecStart=/a\nKillSignal=SIGNOTHING\n",
        "[Service]\nType=simple\n",
    ],
)
def test_what_would_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        parse("a.service", [text])


@pytest.mark.parametrize(
    ("text", "found"), [("5", 5), ("5s", 5), ("1min 30s", 90), ("500ms", 0.5), ("2h", 7200), ("infinity", NEVER), ("1.5 s", 1.5)]
)
def test_time_spans(text: str, found: float) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize(
    ("restart", "code", "again"),
    [
        ("no", 1, False),
        ("always", 0, True),
        ("always", -9, True),
        ("on-failure", 0, False),
        ("on-failure", 1, True),
        ("on-failure", -signal.SIGKILL, True),
        ("on-failure", -signal.SIGTERM, False),
        ("on-success", 0, True),
        ("on-success", 1, False),
        ("on-abnormal", 1, False),
        ("on-abnormal", -signal.SIGSEGV, True),
        ("on-abort", -signal.SIGSEGV, True),
        ("on-abort", 1, False),
    ],
)
def test_when_a_service_is_started_again(restart: str, code: int, again: bool) -> None:
    assert Unit("a.service", restart=restart).wants_restart(code) is again


def test_exit_codes_that_count_as_success() -> None:
    unit = parse("a.service", ["[Service]\nExecStart=/a\nSuccessExitStatus=143 7\nRestart=on-failure\n"])
    assert not unit.wants_restart(143)
    assert unit.wants_restart(8)


def test_an_exit_status_that_prevents_a_restart() -> None:
    unit = parse("a.service", ["[Service]\nExecStart=/a\nRestart=always\nRestartPreventExitStatus=10\n"])
    assert not unit.wants_restart(10)
    assert unit.wants_restart(1)
    assert unit.wants_restart(0)


def test_environment_files() -> None:
    text = '# a comment\nA=1\n\nB = two words \nC=\'it is\'\nD="a\\"b\\$c"\nnot a line\n1X=y\nE=\n'
    assert environment_of(text) == {"A": "1", "B": "two words", "C": "it is", "D": 'a"b$c', "E": ""}


def catalog(root: Path, *names: str) -> Catalog:
    for name in names:
        path = root / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n")
    return Catalog([root / "etc", root / "lib"])


def test_units_are_enabled_by_links(tmp_path: Path) -> None:
    found = catalog(tmp_path, "a.service", "b.service")
    assert found.names() == ["a.service", "b.service"]
    assert found.wanted() == []
    found.enable("a.service")
    assert found.enable("a.service") == []
    assert found.is_enabled("a.service")
    assert found.wanted() == ["a.service"]
    assert (tmp_path / "etc/multi-user.target.wants/a.service").is_symlink()
    (tmp_path / "etc/a.service").unlink()
    assert found.wanted() == []
    assert len(found.disable("a.service")) == 1
    assert not found.is_enabled("a.service")
    with pytest.raises(NoSuchUnit):
        found.enable("a.service")


def test_earlier_directories_win_and_drop_ins_of_all_count(tmp_path: Path) -> None:
    found = catalog(tmp_path, "a.service")
    for path, text in (
        ("lib/a.service", "[Service]\nExecStart=/other\n"),
        ("lib/a.service.d/10.conf", "[Service]\nEnvironment=A=1\n"),
        ("etc/a.service.d/20.conf", "[Service]\nEnvironment=B=2\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    unit = found.load("a.service")
    assert unit.start[0].text == "/a"
    assert unit.environment == ("A=1", "B=2")


def test_templates_and_masks(tmp_path: Path) -> None:
    found = catalog(tmp_path, "t@.service")
    (tmp_path / "etc/t@.service").write_text("[Service]\nExecStart=/a %i\n")
    assert found.load("t@x.service").start[0].text == "/a x"
    assert found.names() == []
    (tmp_path / "etc/m.service").symlink_to("/dev/null")
    with pytest.raises(NoSuchUnit):
        found.load("m.service")


def test_short_names() -> None:
    assert [full_name(name) for name in ("a", "a.service", "a.b", "m.target")] == [
        "a.service",
        "a.service",
        "a.b.service",
        "m.target",
    ]


def test_options_of_systemctl() -> None:
    asked = parsed(["--no-block", "-q", "restart", "a", "-p", "MainPID", "--value", "b.service"])
    assert (asked.verb, asked.names, asked.block, asked.quiet) == ("restart", ["a.service", "b.service"], False, True)
    assert (asked.properties, asked.value_only) == (["MainPID"], True)


def test_logs_have_times_and_make_room(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.log", VirtualClock(0), largest=200, kept=2)
    journal.write(b"half ")
    journal.write(b"a line\r\nnext")
    journal.flush()
    assert tail(tmp_path / "a.log", None) == ["1970-01-01T00:00:00Z half a line", "1970-01-01T00:00:00Z next"]
    for number in range(40):
        journal.note(f"line {number}")
    assert numbered(tmp_path / "a.log", 2).exists()
    assert not numbered(tmp_path / "a.log", 3).exists()
    assert tail(tmp_path / "a.log", 1) == ["1970-01-01T00:00:00Z -- line 39"]


def test_a_line_without_an_end_is_not_kept_in_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.log", VirtualClock(0))
    for _ in range(10):
        journal.write(b"x" * 10_000)
    assert len(tail(tmp_path / "a.log", None)) == 6


def test_the_installers_own_unit_can_be_read() -> None:
    script = (scripts_tree()["run.sh"].content or b"").decode()
    text = script.split("<<UNIT\n")[1].split("\nUNIT\n")[0]
    unit = parse("remuda-server.service", [text.replace("$DATA", "/data").replace("$EXEC", "server").replace("$ROOT", "")])
    assert (unit.type, unit.kill_mode, unit.restart, unit.start_timeout) == ("notify", "mixed", "always", NEVER)
    assert command_line.split(unit.start[0].text) == ["/data/bin/remuda", "server"]
    assert unitfile.read([text])["Install"]["WantedBy"] == ["multi-user.target"]


def test_an_order_with_a_circle_ends_all_the_same() -> None:
    straight = {"a": {"b"}, "b": {"c"}, "c": set[str]()}
    assert without_circles(straight) == straight
    assert without_circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {"a": set(), "c": {"a"}, "d": {"a"}, "b": {"c"}}
    assert without_circles({"a": {"a"}}) == {"a": set()}
