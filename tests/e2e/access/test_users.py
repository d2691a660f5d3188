"""People at a real server: its first start, however it ends, and everything that the command line does for them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.serving import eventually

from .harness import Gateway, kubectl

# Each word on a command line is a program that starts.
pytestmark = pytest.mark.timeout(600)

Obj = dict[str, Any]

NEW = "another password, a better one"
USERS = "/apis/management.cattle.io/v3/users"
# Questions whose answers are not shown.
SECRET = ("Password", "New password", "The same again")


def fresh(directory: Path) -> Gateway:
    """A server that makes the first password itself."""
    return Gateway(directory, environ={"REMUDA_BOOTSTRAP_PASSWORD": ""})


def users(gateway: Gateway) -> list[Obj]:
    """Who can log in; not those that controllers have for themselves."""
    found = gateway.endpoint.request("GET", USERS).json.get("items") or []
    return [user for user in found if user.get("username")]


class Home:
    """Somebody's machine: nothing of it is the server's."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        programs = directory / "bin"
        programs.mkdir()
        plugin = programs / "kubectl-remuda"
        plugin.write_text(f"#!{sys.executable}\nfrom remuda.cli import plugin\nplugin()\n")
        plugin.chmod(0o755)
        kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG" and not key.startswith("REMUDA_")}
        self.environment = {
            **kept,
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "REMUDA_DATA_DIR": str(directory / "none"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TERM": "dumb",
        }

    @property
    def kubeconfig(self) -> Path:
        return self.directory / ".kube" / "config"

    def run(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "remuda", *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def talk(self, *arguments: str, answers: list[tuple[str, str]]) -> tuple[int, str]:
        """On a terminal: wait for each question, type its answer; the exit code and everything that was shown."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "remuda", *arguments], self.environment)
        shown, at, end = "", 0, time.monotonic() + 180
        left = list(answers)
        while time.monotonic() < end:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                data = os.read(terminal, 4096)
            except OSError:
                break
            if not data:
                break
            shown += data.decode(errors="replace")
            if left and left[0][0] in shown[at:]:
                at = len(shown)
                # Some releases of click ask first; then nothing is shown any more, and what was typed by then is forgotten.
                while left[0][0] in SECRET and termios.tcgetattr(terminal)[3] & termios.ECHO and time.monotonic() < end:
                    time.sleep(0.01)
                os.write(terminal, f"{left.pop(0)[1]}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        assert not left, shown
        return os.waitstatus_to_exitcode(status), shown


def test_a_first_start_that_is_killed_again_and_again_makes_one_administrator(tmp_path: Path) -> None:
    gateway = fresh(tmp_path / "data")
    try:
        # Wherever it is by then: with the store, the definitions, or the first user itself.
        for delay in (1.0, 2.0, 3.0):
            with gateway.log.open("ab") as log:
                early = subprocess.Popen(
                    gateway.command(), stdout=log, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1", **gateway.environ}
                )
            time.sleep(delay)
            early.kill()
            early.wait()
        gateway.start()
        file = tmp_path / "data" / "bootstrap-password"
        eventually(lambda: file.exists() and len(users(gateway)) == 1, 120, "the first user was not made")
        (admin,) = users(gateway)
        assert (admin["username"], admin["mustChangePassword"]) == ("admin", True)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        password = file.read_text().strip()
        # Whatever was printed, by whichever life, is the one that is good.
        printed = set(re.findall(r"its password (\S+)", gateway.told()))
        assert printed == {password}
        assert gateway.once("admin", password).token
        bindings = gateway.endpoint.request("GET", "/apis/management.cattle.io/v3/globalrolebindings").json["items"]
        assert [binding["userName"] for binding in bindings] == [admin["metadata"]["name"]]
        before = gateway.told().count("its password")
        gateway.kill()
        gateway.start()
        assert gateway.once("admin", password).token
        assert gateway.told().count("its password") == before
        assert gateway.tracebacks() == []
    finally:
        gateway.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with fresh(tmp_path_factory.mktemp("users") / "data") as started:
        eventually(lambda: (started.directory / "bootstrap-password").exists(), 120, "the first user was not made")
        yield started
        assert started.tracebacks() == [], started.told()[-4000:]


@pytest.fixture(scope="module")
def home(server: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Who has logged in as the administrator, on a terminal, for the first time."""
    there = Home(tmp_path_factory.mktemp("home") / "me")
    password = (server.directory / "bootstrap-password").read_text().strip()
    answers = [
        ("Do you trust this CA?", "y"),
        ("User name", "admin"),
        ("Password", password),
        ("New password", NEW),
        ("The same again", NEW),
    ]
    code, shown = there.talk("login", server.url, answers=answers)
    assert code == 0, shown
    checksum = re.search(r"has the checksum  ([0-9a-f]{64})", shown)
    assert checksum is not None and checksum[1] == server.ca_checksum()
    assert password not in shown and NEW not in shown
    return there


def test_a_first_login_on_a_terminal_shows_the_ca_and_changes_the_password(server: Gateway, home: Home) -> None:
    assert not (server.directory / "bootstrap-password").exists()
    logins = home.directory / "config" / "remuda" / "logins.json"
    assert stat.S_IMODE(logins.stat().st_mode) == 0o600
    assert "admin" in home.run("user", "list")
    (admin,) = users(server)
    assert admin["mustChangePassword"] is False


def test_nothing_is_sent_to_a_server_that_is_not_trusted(server: Gateway, tmp_path: Path) -> None:
    stranger = Home(tmp_path / "stranger")
    before = len(server.audit())
    told = stranger.run("login", server.url, "-u", "admin", "--password-stdin", stdin=f"{NEW}\n", code=1)
    assert f"--ca-checksum {server.ca_checksum()}" in told
    wrong = stranger.run("login", server.url, "-u", "admin", "--password-stdin", "--ca-checksum", "0" * 64, stdin="x\n", code=1)
    assert "another checksum" in wrong
    code, shown = stranger.talk("login", server.url, answers=[("Do you trust this CA?", "n")])
    assert code == 1 and "nothing was sent" in shown
    assert not [line for line in server.audit()[before:] if "login" in line["path"]]
    assert not (stranger.directory / "config" / "remuda" / "logins.json").exists()


@pytest.mark.story
def test_a_user_from_beginning_to_end(server: Gateway, home: Home, tmp_path: Path) -> None:
    home.run("user", "create", "jo", "--display-name", "Jo Doe", "--password-stdin", stdin="a password for jo\n")
    (jo,) = [user for user in json.loads(home.run("user", "list", "-o", "json")) if user["username"] == "jo"]
    assert (jo["name"], jo["mustChangePassword"], jo["state"]) == ("Jo Doe", True, "active")
    theirs = Home(tmp_path / "jo")
    trust = ["--ca-checksum", server.ca_checksum()]
    login = ["login", server.url, "-u", "jo", "--password-stdin", *trust]
    theirs.run(*login, stdin=f"a password for jo\n{NEW}\n")
    # A tenant manages nobody.
    assert "not allowed" in theirs.run("user", "list", code=5)
    assert "not allowed" in theirs.run("user", "set-password", "admin", "--password-stdin", stdin=f"{NEW}!\n", code=5)
    made = json.loads(theirs.run("token", "create", "--ttl", "1h", "--description", "ci", "-o", "json"))
    assert {line.split()[0] for line in theirs.run("token", "list").splitlines()[1:]} >= {made["id"]}
    theirs.run("login", server.url, "--token", "-", "--ca-file", str(server.ca), "--name", "ci", stdin=f"{made['token']}\n")
    assert re.search(r"^\*\s+ci\s", theirs.run("login", "--list"), re.MULTILINE)
    theirs.run("user", "set-password", "--password-stdin", stdin=f"{NEW}\n{NEW} of mine\n")
    # Other sessions ended with the old password, the token did not.
    assert "has ended" in theirs.run("token", "list", "--login", f"127.0.0.1:{server.port}", code=5)
    home.run("user", "disable", "jo")
    assert "has ended" in theirs.run("token", "list", code=5)
    eventually(
        lambda: made["id"] not in str(server.endpoint.request("GET", "/apis/management.cattle.io/v3/tokens").json["items"])
    )
    home.run("user", "delete", "jo")
    assert "there is no user jo" in home.run("user", "delete", "jo", code=3)


def test_kubectl_reaches_a_cluster_by_what_was_merged_until_the_token_is_removed(server: Gateway, home: Home) -> None:
    home.kubeconfig.parent.mkdir(exist_ok=True)
    other = {"name": "other", "cluster": {"server": "https://elsewhere"}}
    home.kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "clusters": [other]}))
    told = home.run("kubeconfig", "local", "--merge")
    assert "the old file is" in told
    merged = yaml.safe_load(home.kubeconfig.read_text())
    assert merged["clusters"][0] == other
    assert merged["current-context"] == "local"
    assert stat.S_IMODE(home.kubeconfig.stat().st_mode) == 0o600
    assert "kube-system" in kubectl(home.kubeconfig, "--context=local", "get", "namespaces")
    # As kubectl's plug-in, and with a context for every cluster.
    done = subprocess.run(
        ["kubectl-remuda", "token", "list", "-o", "name"],
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    (token,) = [name for name in done.stdout.split() if name.startswith("kubeconfig-")]
    everything = yaml.safe_load(home.run("kubeconfig"))
    local, management = [context["name"] for context in everything["contexts"]]
    assert local == "local" and management.endswith(f"@{server.url.removeprefix('https://')}")
    home.run("token", "delete", token)
    refused = kubectl(home.kubeconfig, "--context=local", "get", "namespaces", check=False)
    assert "Unauthorized" in refused or "logged in" in refused


def test_who_owns_the_machine_sets_a_lost_password_without_a_login(server: Gateway, home: Home, tmp_path: Path) -> None:
    owner = Home(tmp_path / "owner")
    owner.environment["REMUDA_DATA_DIR"] = str(server.directory)
    owner.run("user", "set-password", "admin", "--password-stdin", stdin="found again, hopefully\n")
    # Whoever had the old one is out.
    assert "has ended" in home.run("user", "list", code=5)
    login = ["login", server.url, "-u", "admin", "--password-stdin", "--ca-checksum", server.ca_checksum()]
    assert "authentication failed" in owner.run(*login, stdin=f"{NEW}\n", code=5)
    owner.run("user", "set-password", "admin", "--password-stdin", stdin=f"{NEW}\n")
    home.run(*login, stdin=f"{NEW}\n")


def test_a_certificate_counts_before_the_token_beside_it(server: Gateway) -> None:
    """As in Kubernetes, and for a person's token as for a ServiceAccount's."""
    person = server.user("somebody")
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
    sent = {"Content-Type": "application/json", "Authorization": f"Bearer {person.token}"}
    with_certificate = server.endpoint.request("POST", path, review, sent)
    assert with_certificate.json["status"]["userInfo"]["username"] == "kubernetes-admin"
    alone = person.request("POST", path, json.loads(review))
    assert alone.json["status"]["userInfo"]["extra"]["username"] == ["somebody"]


def test_the_end_of_a_session_is_the_end_of_its_copies(server: Gateway, tmp_path: Path) -> None:
    there, thief = Home(tmp_path / "there"), Home(tmp_path / "thief")
    there.run("login", server.url, "-u", "admin", "--password-stdin", "--ca-checksum", server.ca_checksum(), stdin=f"{NEW}\n")
    kept = there.directory / "config" / "remuda" / "logins.json"
    copy = thief.directory / "config" / "remuda" / "logins.json"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(kept.read_bytes())
    assert "admin" in thief.run("user", "list")
    there.run("logout")
    assert "has ended" in thief.run("user", "list", code=5)
    assert "not logged in" in there.run("user", "list", code=3)


def test_no_secret_is_in_a_log(server: Gateway, home: Home) -> None:
    audit = "\n".join(json.dumps(line) for line in server.audit())
    logins = json.loads((home.directory / "config" / "remuda" / "logins.json").read_text())
    secret = next(iter(logins["logins"].values()))["token"].partition(":")[2]
    assert "changepassword" in audit
    for word in (NEW, secret, "a password for jo"):
        assert word not in audit and word not in server.told()
