"""What is kept of logins, how servers come to be trusted, and how kubeconfigs are merged: without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuda.cli.command_tree import completed
from remuda.cli.exit_codes import Code, Failure
from remuda.cli.remote.kubeconfigs import conflict, merged, renamed, write_new
from remuda.cli.remote.login_file import Login, Logins, default_path
from remuda.cli.remote.server_trust import checksum, server_address
from tests.integration.cli.running import Shell

Obj = dict[str, Any]


# --- logins -------------------------------------------------------------------------------------------------------------------


def test_logins_are_for_their_owners_eyes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "logins.json"
    Logins(path).put(Login("a", "https://a", "token-a:secret", "jo", "PEM"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "secret" not in repr(Logins(path).get("a"))


def test_the_last_login_is_the_current_one(tmp_path: Path) -> None:
    logins = Logins(tmp_path / "logins.json")
    assert logins.get() is None and logins.names() == []
    first, second = Login("a", "https://a", "t:1", "jo", "PEM"), Login("b", "https://b", "t:2", "jo", insecure=True)
    logins.put(first)
    logins.put(second)
    assert logins.get() == second and logins.get("a") == first and logins.names() == ["a", "b"]
    logins.use("a")
    assert logins.get() == first
    assert logins.of_server("https://b") == second and logins.of_server("https://c") is None
    logins.remove("a")
    assert logins.get() is None and logins.get("b") == second


def test_logging_in_again_forgets_what_the_server_was_trusted_by(tmp_path: Path) -> None:
    logins = Logins(tmp_path / "logins.json")
    logins.put(Login("a", "https://a", "t:1", "jo", insecure=True))
    logins.put(Login("a", "https://a", "t:2", "jo", "PEM"))
    assert logins.get() == Login("a", "https://a", "t:2", "jo", "PEM")


def test_what_this_version_does_not_know_stays(tmp_path: Path) -> None:
    path = tmp_path / "logins.json"
    path.write_text(json.dumps({"colour": "blue", "logins": {"a": {"server": "https://a", "token": "t", "from": "later"}}}))
    logins = Logins(path)
    logins.put(Login("a", "https://a", "t:2"))
    logins.put(Login("b", "https://b", "t:3"))
    found = json.loads(path.read_text())
    assert found["colour"] == "blue" and found["logins"]["a"]["from"] == "later"


@pytest.mark.parametrize("content", ["{", "[]", '{"logins": []}'])
def test_a_file_that_is_none_is_not_written_over(tmp_path: Path, content: str) -> None:
    path = tmp_path / "logins.json"
    path.write_text(content)
    with pytest.raises(Failure, match="log in again"):
        Logins(path).put(Login("a", "https://a", "t:2"))
    assert path.read_text() == content


def test_where_they_are() -> None:
    assert default_path({"HOME": "/h"}) == Path("/h/.config/remuda/logins.json")
    assert default_path({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/remuda/logins.json")
    assert default_path({"HOME": "/h", "XDG_CONFIG_HOME": "x"}) == Path("/h/.config/remuda/logins.json")


# --- servers ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("remuda.example", "https://remuda.example"),
        ("https://Remuda.Example/", "https://remuda.example"),
        ("https://remuda.example:443", "https://remuda.example"),
        ("10.0.0.1:8443", "https://10.0.0.1:8443"),
        ("https://[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_an_address_is_brought_to_one_form(typed: str, meant: str) -> None:
    assert server_address(typed) == meant


@pytest.mark.parametrize(
    "typed",
    ["http://a", "ftp://a", "https://", "https://jo:x@a", "https://a/path", "https://a?x", "https://a:99999", "https://[::1"],
)
def test_what_is_no_address_or_not_safe_is_refused(typed: str) -> None:
    with pytest.raises(Failure):
        server_address(typed)


def test_a_checksum_is_the_one_that_agents_compare() -> None:
    from remuda.gateway.server.serving_certificate import ca_checksum

    assert checksum("PEM") == checksum("PEM\n") == ca_checksum("PEM\n")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["user", "list"], 3, "you are not logged in: remuda login URL, or use --kubeconfig FILE; that of a server here"),
        (["token", "list", "--login", "x"], 3, "there is no login x"),
        (["token", "list", "--login", "x", "--kubeconfig", "y"], 2, "exclude each other"),
        (["token", "list", "--kubeconfig", "missing"], 3, "missing does not exist"),
        (["token", "credential", "--server", "https://a"], 3, "you are not logged in to https://a"),
        (["logout"], 3, "you are not logged in"),
        (["login"], 2, "missing argument"),
        (["login", "http://a"], 1, "only https is allowed"),
        (["login", "https://127.0.0.1:1", "-u", "jo"], 1, "Connection refused; nothing listens there: start the server"),
        (["login", "a", "--token", "t", "-u", "jo"], 2, "exclude each other"),
        (["login", "a", "--ca-checksum", "0", "--insecure-skip-tls-verify"], 2, "exclude each other"),
        (["login", "--use", "x"], 3, "there is no login x"),
        (["kubeconfig", "prod"], 3, "log in to get a cluster's kubeconfig"),
        (["kubeconfig", "--login", "x"], 3, "there is no login x"),
        (["kubeconfig", "--merge", "--output", "x"], 2, "exclude each other"),
        (["user", "set-password", "--must-change"], 3, "you are not logged in"),
    ],
)
def test_without_a_login_there_is_one_sentence(shell: Shell, arguments: list[str], code: int, sentence: str) -> None:
    done = shell.run(*arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert sentence in done.stderr
    assert done.stderr.startswith("remuda: ") and done.stderr.count("\n") == 1


# --- merging ------------------------------------------------------------------------------------------------------------------


def config(*clusters: tuple[str, str], user: str = "jo@remuda", token: str = "t:1") -> Obj:
    return {
        "clusters": [{"name": name, "cluster": {"server": server}} for name, server in clusters],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}} for name, _ in clusters],
        "current-context": clusters[0][0],
    }


PROD, TEST = ("prod", "https://r/k8s/clusters/c-a"), ("test", "https://r/k8s/clusters/c-b")
PATH = Path("config")


def test_merging_adds_every_context_and_loses_nothing() -> None:
    theirs = {**config(("other", "https://o"), user="me"), "preferences": {"colors": True}, "extensions": [{"name": "x"}]}
    after = merged(theirs, config(PROD, TEST), PATH, use=False, force=False)
    assert [entry["name"] for entry in after["contexts"]] == ["other", "prod", "test"]
    assert after["current-context"] == "other"
    assert (after["preferences"], after["extensions"]) == ({"colors": True}, [{"name": "x"}])
    assert after["clusters"][0] == theirs["clusters"][0] and after["users"][0] == theirs["users"][0]
    assert merged(theirs, config(PROD), PATH, use=True, force=False)["current-context"] == "prod"
    assert merged({}, config(PROD), PATH, use=False, force=False)["current-context"] == "prod"


def test_merging_again_renews_the_token_and_keeps_a_chosen_namespace() -> None:
    theirs = config(PROD, TEST)
    theirs["contexts"][0]["context"]["namespace"] = "shop"
    after = merged(theirs, config(PROD, token="t:2"), PATH, use=False, force=False)
    assert after["users"] == [{"name": "jo@remuda", "user": {"token": "t:2"}}]
    assert {entry["name"]: entry["context"].get("namespace") for entry in after["contexts"]} == {"test": None, "prod": "shop"}


@pytest.mark.parametrize(
    ("theirs", "problem"),
    [
        (config(("prod", "https://elsewhere"), user="me"), "a cluster prod at https://elsewhere"),
        (
            {"contexts": [{"name": "prod", "context": {"cluster": "mine", "user": "me"}}]},
            "a context prod for another cluster",
        ),
        (config(("other", "https://o")), "a user jo@remuda for another cluster"),
        (config(TEST), ""),
        ({}, ""),
        ({"clusters": None, "contexts": None}, ""),
    ],
)
def test_a_name_that_means_something_else_is_a_conflict(theirs: Obj, problem: str) -> None:
    assert conflict(theirs, config(PROD)) == problem
    if problem:
        with pytest.raises(Failure, match=problem) as caught:
            merged(theirs, config(PROD), PATH, use=False, force=False)
        assert caught.value.code is Code.CONFLICT
        merged(theirs, config(PROD), PATH, use=False, force=True)


@pytest.mark.parametrize("theirs", [{"clusters": {}, "contexts": "x"}, {"users": ["x"]}])
def test_what_is_no_kubeconfig_is_not_touched(theirs: Obj) -> None:
    with pytest.raises(Failure, match="nothing was changed"):
        merged(theirs, config(PROD), PATH, use=False, force=False)


def test_an_administrators_kubeconfig_gets_another_name() -> None:
    after = renamed(config(("remuda", "https://r"), user="admin"), "mine")
    assert (after["clusters"][0]["name"], after["users"][0]["name"]) == ("mine", "mine-admin")
    assert after["contexts"] == [{"name": "mine", "context": {"cluster": "mine", "user": "mine-admin"}}]


def test_a_file_that_is_there_is_not_replaced_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "kc"
    write_new(path, "one", force=False)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Failure) as caught:
        write_new(path, "two", force=False)
    assert caught.value.code is Code.CONFLICT and path.read_text() == "one"
    write_new(path, "two", force=True)
    assert path.read_text() == "two"


# --- kubectl ------------------------------------------------------------------------------------------------------------------


def test_kubectl_is_told_how_a_line_could_go_on() -> None:
    commands = [line.partition("\t")[0] for line in completed(["to"])]
    assert commands == ["token", ":4"]
    assert {"list", "create", "delete", ":4"} == {line.partition("\t")[0] for line in completed(["token", ""])}
    assert "--ttl" in {line.partition("\t")[0] for line in completed(["token", "create", "--t"])}
    assert completed([])[-1] == ":4"
