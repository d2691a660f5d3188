"""What `remuda rotate ca` says and ends with while hosts or cluster agents don't trust the new CA."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.cli.commands import rotate
from remuda.cli.exit_codes import Code, run
from remuda.kube.errors import ApiError

Obj = dict[str, Any]
OLD, NEW = "0" * 64, "1" * 64


class Asked:
    """A server that keeps an old CA, for `behind` clients of 30."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.stage = "keeping"
        self.bodies: list[Obj] = []

    def ask(self, server: rotate.RotatedServer, method: str, path: str = "", body: Any = None) -> Obj:
        if method == "POST":
            self.bodies.append(body)
            if self.stage and body.get("finish"):
                if self.behind and not body.get("force"):
                    causes = [{"message": each["message"]} for each in self.clients()]
                    raise ApiError(409, "Conflict", f"{self.behind} of 30 don't trust the new CA yet", {"causes": causes})
                self.stage = ""
                return {**self.told(), "leftBehind": self.clients()}
        elif self.behind:
            self.behind -= 10
        return self.told()

    def clients(self) -> list[Obj]:
        return [{"message": f"host ns/h{number:02} trusts only the old CA"} for number in range(self.behind)]

    def told(self) -> Obj:
        key: Obj = {"kind": "ca", "used": NEW, "others": [OLD] if self.stage else [], "stage": self.stage, "handovers": []}
        if self.stage:
            key["clients"] = {"total": 30, "behind": self.clients()}
        else:
            key["handovers"] = [{"from": [OLD], "until": "2027-01-01T00:00:00Z"}]
        return {"keys": [key], "serving-certificate": {}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked(30)
    monkeypatch.setattr(rotate.RotatedServer, "ask", lambda server, *arguments, **named: made.ask(server, *arguments, **named))
    monkeypatch.setattr(rotate, "_CLIENTS_EVERY", 0.0)
    return made


def test_finish_is_refused_and_names_the_first_twenty(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rotate.command, ["ca", "--finish"]) == Code.CONFLICT
    found = capsys.readouterr()
    assert found.out == "" and asked.stage == "keeping"
    lines = found.err.splitlines()
    assert lines[0] == "  host ns/h00 trusts only the old CA" and lines[19] == "  host ns/h19 trusts only the old CA"
    assert lines[20:] == ["  and 10 more: remuda rotate status -o json", "remuda: 30 of 30 don't trust the new CA yet"]


def test_force_names_clients_that_lose_access_and_until_when_they_can_follow(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.behind = 1
    assert run(rotate.command, ["ca", "--finish", "--force"]) == Code.OK
    found = capsys.readouterr()
    assert asked.bodies == [{"finish": True, "force": True}]
    assert found.err.splitlines() == [
        "ca: these do not trust the new one:",
        "  host ns/h00 trusts only the old CA",
        "agents that trust only the old one can follow until 2027-01-01T00:00:00Z",
    ]
    assert found.out == f"ca: the old one is dropped, {NEW[:16]} is used\n"


def test_until_trusted_shows_how_many_there_are_and_then_goes_on(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rotate.command, ["ca", "--finish", "--until-trusted"]) == Code.OK
    counted = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ca: ")]
    assert counted == [f"ca: {number} of 30 hosts and cluster agents trust the new CA" for number in (10, 20, 30)]


def test_until_trusted_waits_for_a_rotation_that_was_begun_before(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rotate.command, ["ca", "--until-trusted"]) == Code.OK
    assert asked.bodies == [] and asked.stage == "keeping"
    assert capsys.readouterr().err.splitlines()[-1] == "ca: 30 of 30 hosts and cluster agents trust the new CA"


def test_until_trusted_ends_with_its_time_and_drops_nothing(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rotate.command, ["ca", "--finish", "--until-trusted", "--timeout", "0s"]) == Code.TIMEOUT
    assert asked.bodies == []
    assert "the old one is kept" in capsys.readouterr().err


def test_status_shows_names_up_to_twenty_and_all_of_them_as_json(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    asked.behind = 40
    assert run(rotate.command, ["status"]) == Code.OK
    table = capsys.readouterr().out
    assert "ca: 0 of 30 hosts and cluster agents trust the new CA; not yet:\n  host ns/h00 trusts only the old CA" in table
    assert "h19" in table and "h20" not in table and "and 10 more" in table
    asked.behind = 40
    assert run(rotate.command, ["status", "-o", "json"]) == Code.OK
    assert len(json.loads(capsys.readouterr().out)["keys"][0]["clients"]["behind"]) == 30


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--force"], "--force needs --finish"),
        (["--no-handover"], "--no-handover needs --finish"),
        (["--until-trusted", "--no-wait"], "--until-trusted can't be combined with --no-wait"),
        (["--finish", "--force", "--until-trusted"], "--until-trusted can't be combined with --force"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], why: str, asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rotate.command, ["ca", *arguments]) == Code.USAGE
    assert why in capsys.readouterr().err and asked.bodies == []
