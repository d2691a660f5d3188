"""The script that installs the agent: its words, its arguments, and a whole installation on a host that is a directory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from remuda.agent.install import ARCHIVE, build, install_script, uninstall_script
from tests.integration.agent.builders import plan_bytes, server, shell
from tests.integration.agent.fakeapi import KUBECONFIG, FakeApi

SHELLS = [words for words in (["dash"], ["bash"], ["busybox", "sh"]) if shutil.which(words[0])]


@pytest.fixture(params=SHELLS, ids=lambda words: words[0])
def sh(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = request.param
    return words


def test_every_shell_can_read_both_scripts(sh: list[str]) -> None:
    for text in (install_script(server="https://x", bootstrap_token="t", env=[("A", "it's")]), uninstall_script()):
        subprocess.run([*sh, "-n"], input=text.encode(), check=True)


def test_the_lines_before_the_script_are_the_originals() -> None:
    text = install_script(
        server="https://s",
        base_url="https://s/assets",
        ca_checksum="ab",
        env=[("HTTP_PROXY", "a'b"), ("bad name", "x")],
        strict=True,
        bootstrap_token="tok=",
    )
    assert text.split("\n")[:9] == [
        "#!/usr/bin/env sh",
        "export HTTP_PROXY='a'\\''b'",
        "export STRICT_VERIFY='true'",
        'CATTLE_AGENT_BINARY_BASE_URL="https://s/assets"',
        "CATTLE_SERVER='https://s'",
        'CATTLE_CA_CHECKSUM="ab"',
        "CATTLE_ROLE_NONE=true",
        'CATTLE_TOKEN="tok="',
        "",
    ]
    assert "STRICT_VERIFY='false'" not in install_script(env=[("STRICT_VERIFY", "true")])


def test_no_variable_of_a_cluster_moves_a_host() -> None:
    text = install_script(env=[("CATTLE_HOST_ROOT", "/"), ("CATTLE_HOST_LOOPBACK", "127.0.0.1"), ("A", "b")])
    assert text.split("\n")[1:3] == ["export A='b'", "export STRICT_VERIFY='false'"]


def dry(sh: list[str], *args: str, text: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    known = {"PATH": os.environ["PATH"], "CATTLE_INSTALL_DRY_RUN": "true", **env}
    return subprocess.run(
        [*sh, "-s", "-", *args], input=text or install_script(), env=known, capture_output=True, text=True, check=False
    )


def shown(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert result.returncode == 0, result.stderr
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


def test_arguments_become_settings(sh: list[str]) -> None:
    args = "-s https://s/ -t secret -c ab -e --worker -n node -i 10.0.0.1 --address eth -l a=b --label c=d --taints k=v:NoExecute"
    found = shown(dry(sh, *args.split()))
    wanted = {
        "CATTLE_SERVER": "https://s",
        "CATTLE_CA_CHECKSUM": "ab",
        "CATTLE_ROLE_ETCD": "true",
        "CATTLE_ROLE_CONTROLPLANE": "false",
        "CATTLE_ROLE_WORKER": "true",
        "CATTLE_NODE_NAME": "node",
        "CATTLE_ADDRESS": "eth",
        "CATTLE_INTERNAL_ADDRESS": "10.0.0.1",
        "CATTLE_LABELS": "a=b,c=d",
        "CATTLE_TAINTS": "k=v:NoExecute",
        "CATTLE_TOKEN": "(given)",
        "BINARY_URL": "https://s/assets/remuda-agent.pyz",
        "UNINSTALL_URL": "https://s/assets/system-agent-uninstall.sh",
    }
    assert {name: found[name] for name in wanted} == wanted


def test_all_roles_no_roles_and_environment(sh: list[str]) -> None:
    every = shown(dry(sh, "-a", "-s", "https://s", "-t", "x"))
    assert {every[f"CATTLE_ROLE_{role}"] for role in ("ETCD", "CONTROLPLANE", "WORKER")} == {"true"}
    none = shown(dry(sh, "-a", "--no-roles", CATTLE_SERVER="https://s", CATTLE_TOKEN="x"))
    assert {none[f"CATTLE_ROLE_{role}"] for role in ("ETCD", "CONTROLPLANE", "WORKER")} == {"false"}
    there = shown(
        dry(sh, CATTLE_SERVER="https://s", CATTLE_AGENT_VAR_DIR="/v", CATTLE_AGENT_BIN_PREFIX="/p", https_proxy="http://p")
    )
    assert (there["VAR_DIR"], there["BINARY"], there["HTTPS_PROXY"]) == ("/v", "/p/bin/rancher-system-agent", "http://p")


def test_a_host_in_a_directory_has_all_its_places_below_it(sh: list[str], tmp_path: Path) -> None:
    named = {"CATTLE_AGENT_VAR_DIR": "/v", "CATTLE_AGENT_CONFIG_DIR": f"{tmp_path}/c", "CATTLE_AGENT_BIN_PREFIX": "/p"}
    found = shown(dry(sh, CATTLE_SERVER="https://s", CATTLE_HOST_ROOT=f"{tmp_path}/", **named))
    assert (found["VAR_DIR"], found["CONFIG_DIR"]) == (f"{tmp_path}/v", f"{tmp_path}/c")
    assert (found["BINARY"], found["UNIT"]) == (
        f"{tmp_path}/p/bin/rancher-system-agent",
        f"{tmp_path}/etc/systemd/system/rancher-system-agent.service",
    )


@pytest.mark.parametrize("name", ["CATTLE_AGENT_VAR_DIR", "CATTLE_AGENT_CONFIG_DIR", "CATTLE_AGENT_BIN_PREFIX"])
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("relative", "absolute"),
        ("/a/../../b", "without"),
        ("{root}/../b", "without"),
        ("{root}", "all of this host"),
        ("/", "all of this host"),
        ("/out/x", "leads out of"),
        ("/out", "leads out of"),
        ("/nowhere/x", "no directory"),
        ("/file/x", "no directory"),
    ],
)
def test_a_place_outside_of_a_host_is_refused(sh: list[str], tmp_path: Path, name: str, place: str, why: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    (root / "nowhere").symlink_to(tmp_path / "missing")
    (root / "file").touch()
    result = dry(sh, CATTLE_SERVER="https://s", CATTLE_HOST_ROOT=str(root), **{name: place.format(root=root)})
    assert result.returncode == 1
    assert why in result.stderr and name in result.stderr


@pytest.mark.parametrize("place", ["etc", "var/lib", "usr"])
def test_a_link_of_the_host_itself_is_not_followed_out_of_it(tmp_path: Path, place: str) -> None:
    (tmp_path / "root" / place).parent.mkdir(parents=True)
    (tmp_path / "root" / place).symlink_to(tmp_path)
    result = dry(SHELLS[0], CATTLE_SERVER="https://s", CATTLE_HOST_ROOT=str(tmp_path / "root"))
    assert result.returncode == 1 and "leads out of" in result.stderr


@pytest.mark.parametrize(
    ("args", "env", "why"),
    [
        (["--nonsense"], {}, "unknown argument --nonsense"),
        (["--server"], {}, "needs a value"),
        ([], {}, "--server URL"),
        (["-s", "server"], {}, "https://"),
        (["-s", "https://s", "-t", "x"], {}, "needs a role"),
        (["-s", "https://s"], {"CATTLE_AGENT_STRICT_VERIFY": "TRUE"}, "--ca-checksum"),
        (["-s", "https://s"], {"CATTLE_HOST_ROOT": "relative"}, "absolute"),
        (["-s", "https://s"], {"CATTLE_AGENT_BINARY_LOCAL": "true"}, "LOCAL_LOCATION"),
    ],
)
def test_a_request_that_can_not_work_is_refused_with_its_reason(args: list[str], env: dict[str, str], why: str) -> None:
    result = dry(SHELLS[0], *args, **env)
    assert result.returncode == 1
    assert why in result.stderr


def test_a_host_without_python_is_told_or_gets_a_binary(tmp_path: Path) -> None:
    for program in ("uname", "awk", "tr", "sed"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    words = [str(shutil.which(SHELLS[0][0])), *SHELLS[0][1:]]
    env = {"PATH": str(tmp_path), "CATTLE_SERVER": "https://s"}
    result = dry(words, **env)
    assert result.returncode == 1
    assert "no Python 3.9" in result.stderr and "CATTLE_AGENT_FALLBACK_URL" in result.stderr
    text = install_script(server="https://s", checksum="0" * 64, fallback_url="https://f/agent-{arch}")
    found = shown(dry(words, text=text, **env))
    assert found["BINARY_URL"].startswith("https://f/agent-") and "{" not in found["BINARY_URL"]
    assert found["BINARY_CHECKSUM"] == "", "the archive's checksum is not the binary's"


@pytest.mark.parametrize(("known", "sent"), [("https://s", "eyJ.a-b_c"), ("https://s.evil", ""), ("https://x", "")])
def test_a_plans_token_goes_to_no_other_server(tmp_path: Path, sh: list[str], known: str, sent: str) -> None:
    connection = {"kubeConfig": f"clusters:\n- cluster:\n    server: {known}\nusers:\n- user:\n    token: eyJ.a-b_c\n"}
    (tmp_path / "info").write_text(json.dumps(connection, indent=2))
    text = install_script()
    function = text[text.index("plan_token() {") :].partition("\n}\n")[0] + "\n}\nplan_token\n"
    env = {"PATH": os.environ["PATH"], "CATTLE_SERVER": "https://s", "CONNECTION": str(tmp_path / "info")}
    assert subprocess.run(sh, input=function, env=env, capture_output=True, text=True, check=True).stdout.strip() == sent


def functions(*names: str) -> str:
    """Some of the script's own functions, to be run alone."""
    text = install_script()
    return "".join(text[text.index(f"\n{name}() {{") :].partition("\n}\n")[0] + "\n}\n" for name in names)


def test_there_is_no_last_try_and_tries_become_rarer(sh: list[str]) -> None:
    constants = [
        line for line in install_script().splitlines() if line.startswith(("RETRY_PAUSE=", "LONG_RETRY_PAUSE=", "SOON="))
    ]
    script = "\n".join([*constants, "warn() { :; }", "sleep() { echo $1; }", functions("again")])
    script += 'tries=0\nwhile [ "$tries" -lt 6000 ]; do again "the server is away"; done\n'
    done = subprocess.run(sh, input=script, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5"] * 24 + ["30"] * 5976


def test_a_host_keeps_its_id_whenever_its_installation_was_cut(tmp_path: Path, sh: list[str]) -> None:
    """The server knows it by that from the first answer on."""
    script = functions("keep", "find_id") + 'CATTLE_ID=\nfind_id\nprintf %s "$CATTLE_ID"\n'
    env = {"PATH": os.environ["PATH"], "CONFIG_DIR": str(tmp_path)}

    def found() -> str:
        return subprocess.run(sh, input=script, env=env, capture_output=True, text=True, check=True).stdout

    first = found()
    assert len(first) == 63 and (tmp_path / "cattle-id").stat().st_mode & 0o777 == 0o600
    (tmp_path / "cattle-id.new").write_text("")
    assert found() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cattle-id"]


SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$CATTLE_HOST_ROOT/systemctl.log"
"""


class Server(FakeApi):
    """A management server on loopback: everything an installation asks for, and the plan."""

    url = ""
    refusal = b""
    registered: dict[str, str]

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        if request.path == "/healthz":
            return 200, {}, b"ok"
        if request.path == f"/assets/{ARCHIVE}":
            return 200, {}, build()
        if request.path == "/assets/system-agent-uninstall.sh":
            return 200, {}, uninstall_script().encode()
        if request.path == "/v3/connect/agent":
            self.registered = {name.lower(): value for name, value in request.headers.items()}
            refusal, self.refusal = self.refusal, b""
            if refusal:
                return 403, {}, refusal
            info = {"kubeConfig": KUBECONFIG.format(url=self.url, ca=""), "namespace": "ns", "secretName": "plan"}
            return 200, {}, json.dumps(info).encode()
        return super().__call__(request, body)


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_an_installation_from_the_first_line_to_an_applied_plan_and_away_again(tmp_path: Path) -> None:
    root = tmp_path / "host"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    root.mkdir()
    api = Server(plan=plan_bytes(instructions=[shell(f"touch {root}/applied")]), plan_state=b"pending")
    env = {
        "PATH": f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CATTLE_HOST_ROOT": str(root),
        "CATTLE_HOST_LOOPBACK": "127.5.6.7",
    }
    with server(api) as url:
        api.url = url
        text = install_script(server=url, checksum=hashlib.sha256(build()).hexdigest())
        args = ["--token", 'to"ken', "--all-roles", "--label", "a=b", "--node-name", "n1"]
        subprocess.run(["sh", "-s", "-", *args], input=text, env=env, check=True, capture_output=True, text=True, timeout=60)
        assert api.registered["authorization"] == 'Bearer to"ken'
        assert api.registered["x-cattle-role-control-plane"] == "true"
        assert (api.registered["x-cattle-labels"], api.registered["x-cattle-node-name"]) == ("a=b", "n1")
        assert json.loads(api.registered["x-cattle-layout"]) == {"root": str(root), "loopback": "127.5.6.7"}
        assert "x-cattle-address" not in api.registered
        assert len(api.registered["x-cattle-id"]) == 63
        assert (root / "etc/rancher/agent/cattle-id").read_text().strip() == api.registered["x-cattle-id"]
        assert (root / "systemctl.log").read_text().splitlines() == [
            "stop rancher-system-agent",
            "daemon-reload",
            "enable rancher-system-agent",
            "restart rancher-system-agent",
        ]
        assert not (root / "var/lib/rancher/agent/interlock/restart-pending").exists()
        assert "x-cattle-plan-token" not in api.registered
        api.refusal = b'{"kind":"Status","message":"not today","code":403}'
        again = subprocess.run(
            ["sh", "-s", "-", *args], input=text, env=env, check=True, capture_output=True, text=True, timeout=60
        )
        assert "(HTTP 403): not today; again" in again.stderr
        assert api.registered["x-cattle-plan-token"] == "s3cret", "it is known already, and shows it"
        _run_unit(root, env, api)
    before = {path for path in root.rglob("*") if path.is_file()}
    subprocess.run([str(root / "usr/local/bin/rancher-system-agent-uninstall.sh")], env=env, check=True)
    left = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    assert left == ["applied", "systemctl.log"]
    assert len(before) > len(left)


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_an_installation_with_directories_of_its_own_stays_below_the_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "host", tmp_path / "outside"
    for directory in (tmp_path / "bin", root, outside):
        directory.mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    api = Server(plan=plan_bytes(instructions=[shell(f"touch {root}/applied")]), plan_state=b"pending")
    env = {"PATH": f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}", "CATTLE_HOST_ROOT": str(root)}
    places = [(f"CATTLE_AGENT_{what}", f"{outside}/{what}") for what in ("VAR_DIR", "CONFIG_DIR", "BIN_PREFIX")]
    with server(api) as url:
        api.url = url
        text = install_script(server=url, checksum=hashlib.sha256(build()).hexdigest(), env=places)
        args = ["sh", "-s", "-", "--token", "t", "--all-roles"]
        subprocess.run(args, input=text, env=env, check=True, capture_output=True, text=True, timeout=60)
        _run_unit(root, env, api)
    assert list(outside.iterdir()) == []
    inside = Path(f"{root}{outside}")
    assert (inside / "VAR_DIR/applied").is_dir() and (inside / "CONFIG_DIR/config.yaml").is_file()
    # The uninstaller finds the agent's own directory by itself.
    known = {name: place for name, place in places if name != "CATTLE_AGENT_VAR_DIR"}
    subprocess.run([str(inside / "BIN_PREFIX/bin/rancher-system-agent-uninstall.sh")], env={**env, **known}, check=True)
    assert sorted(path.name for path in root.rglob("*") if path.is_file()) == ["applied", "systemctl.log"]


def test_the_uninstaller_touches_nothing_outside_of_a_host(tmp_path: Path) -> None:
    root, outside = tmp_path / "host", tmp_path / "outside"
    for directory in (root, outside):
        directory.mkdir()
        (directory / "kept").touch()
    (root / "out").symlink_to(outside)
    for name in ("CATTLE_AGENT_VAR_DIR", "CATTLE_AGENT_CONFIG_DIR", "CATTLE_PROVISIONING_DIR"):
        for place, code in ((str(outside), 0), ("/out", 1), ("/out/kept", 1), (str(root), 1)):
            env = {"PATH": "/nonexistent:/usr/bin:/bin", "CATTLE_HOST_ROOT": str(root), name: place}
            result = subprocess.run(["sh"], input=uninstall_script(), env=env, capture_output=True, text=True, check=False)
            assert result.returncode == code, (name, place, result.stderr)
            assert (outside / "kept").exists() and (root / "kept").exists()


def _run_unit(root: Path, env: dict[str, str], api: FakeApi) -> None:
    """What systemd would do with the unit that was written."""
    lines = (root / "etc/systemd/system/rancher-system-agent.service").read_text().splitlines()
    command = next(line.partition("=")[2] for line in lines if line.startswith("ExecStart="))
    given = dict(line.partition("=")[2].split("=", 1) for line in lines if line.startswith("Environment="))
    agent = subprocess.Popen(command.split(), env={**env, **given}, stderr=subprocess.PIPE)
    try:
        api.wait(lambda a: a.text("plan-state") == "succeeded", 90)
    finally:
        agent.send_signal(signal.SIGTERM)
        said = agent.communicate(timeout=90)[1].decode()
    assert agent.returncode == 0, said
    assert (root / "applied").exists()


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_a_damaged_agent_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    (tmp_path / "agent").write_text("damaged")
    env = {
        "PATH": f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CATTLE_HOST_ROOT": str(tmp_path / "host"),
        "CATTLE_REMOTE_ENABLED": "false",
        "CATTLE_LOCAL_ENABLED": "true",
        "CATTLE_AGENT_BINARY_LOCAL": "true",
        "CATTLE_AGENT_BINARY_LOCAL_LOCATION": str(tmp_path / "agent"),
        "CATTLE_AGENT_BINARY_CHECKSUM": "0" * 64,
    }
    result = subprocess.run(["sh"], input=install_script(), env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "another checksum" in result.stderr
    assert not (tmp_path / "host/usr/local/bin/rancher-system-agent").exists()


class Changing(FakeApi):
    """A server whose archive is another one with each download, until there are none left; a later one says its checksum."""

    def __init__(self, archives: list[bytes], said: bytes = b"") -> None:
        super().__init__()
        self.archives, self.said = archives, said
        self.taken = 0

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        if request.path == f"/assets/{ARCHIVE}":
            self.taken += 1
            return 200, {}, self.archives[min(self.taken, len(self.archives)) - 1]
        if request.path == "/assets/sha256sum.txt":
            return (200, {}, self.said) if self.said else (503, {}, b"")
        return 404, {}, b""


def downloaded(sh: list[str], directory: Path, api: Changing, checksum: str, **given: str) -> subprocess.CompletedProcess[str]:
    """The script's own function that fetches the agent; it ends after five more tries, which the script never does."""
    names = ("fetch", "place", "download", "current_checksum")
    text = install_script()
    lines = [line for line in text.splitlines() if line.startswith(("info() ", "has_checksum() ", "sum_of() "))]
    script = "\n".join(["set -e", *lines, functions(*names)])
    script += 'again() { echo "$1" >&2; tries=$((tries + 1)); [ "$tries" -lt 6 ] || exit 9; }\n'
    with server(api) as url:
        script += f'place "the agent" "{url}/assets/{ARCHIVE}" "" "{checksum}" "{directory}/agent"\n'
        env = {"PATH": os.environ["PATH"], "SCRATCH": str(directory), "CATTLE_SERVER": url, **given}
        return subprocess.run(sh, input=script, env=env, capture_output=True, text=True, check=False, timeout=60)


def sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")


@needs_curl
def test_another_archive_than_the_one_wanted_is_asked_for_again(sh: list[str], tmp_path: Path) -> None:
    """As of several servers that are upgraded one after the other."""
    done = downloaded(sh, tmp_path, Changing([b"old", b"half", b"new"]), sum_of(b"new"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "agent").read_bytes() == b"new"
    assert done.stderr.count(f"the agent has another checksum than {sum_of(b'new')} and is not installed") == 2


@needs_curl
def test_an_archive_that_never_fits_is_never_in_place(sh: list[str], tmp_path: Path) -> None:
    api = Changing([b"bad"], said=f"{sum_of(b'good')}  {ARCHIVE}\n".encode())
    assert downloaded(sh, tmp_path, api, sum_of(b"good")).returncode == 9
    assert api.taken > 5
    assert not (tmp_path / "agent").exists() and not (tmp_path / "agent.new").exists()


@needs_curl
@pytest.mark.parametrize("theirs", [False, True])
def test_an_upgraded_server_says_what_its_archive_has_but_no_users_checksum_changes(
    sh: list[str], tmp_path: Path, theirs: bool
) -> None:
    said = f"{sum_of(b'uninstaller')}  system-agent-uninstall.sh\n{sum_of(b'new')}  {ARCHIVE}\n"
    given = {"CATTLE_AGENT_BINARY_CHECKSUM": sum_of(b"old")} if theirs else {}
    done = downloaded(sh, tmp_path, Changing([b"new"], said=said.encode()), sum_of(b"old"), **given)
    assert (done.returncode, (tmp_path / "agent").exists()) == ((9, False) if theirs else (0, True)), done.stderr


@pytest.mark.parametrize("place", ["/", "/etc", "relative", "/var/lib/../.."])
def test_the_uninstaller_does_not_take_the_host_along(tmp_path: Path, place: str) -> None:
    env = {"PATH": "/nonexistent:/usr/bin:/bin", "CATTLE_HOST_ROOT": str(tmp_path), "CATTLE_AGENT_VAR_DIR": place}
    result = subprocess.run(["sh"], input=uninstall_script(), env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "refusing" in result.stderr
