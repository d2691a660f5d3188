"""A recording that was edited, a real server that changed its mind and a comparison that was removed are all noticed."""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api import recording
from tests.api.recording import LIVE, RECORD, RECORDED, Shelf, Tape, scrubbed

MODULE, NAME = "test_x", "test_a_thing"
Act = Callable[[Tape], object]


def asks(answer: Any = None, *, body: str = "", compares: bool = True) -> Act:
    """A test that sends one request to the real server, which answers `answer`, and compares the answer."""

    def act(tape: Tape) -> None:
        found = tape.take("GET /a", recording.sent(body), lambda: answer)
        if compares:
            tape.compared("GET /a", found)

    return act


def run(place: Path, mode: str, act: Act, *, accept: bool = False, passed: bool = True) -> str:
    """What is wrong with the recording after a test that does `act`."""
    shelf = Shelf(place, mode, accept=accept)
    act(shelf.begin(MODULE, NAME))
    problem = shelf.end(MODULE, NAME, passed=passed)
    shelf.write(MODULE, {NAME})
    return problem


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "recorded"
    assert run(found, RECORD, asks({"x": 1})) == ""
    return found


def edit(place: Path, change: Callable[[list[Any]], object]) -> None:
    file = place / f"{MODULE}.json.xz"
    tapes = json.loads(lzma.decompress(file.read_bytes()))
    change(tapes[NAME])
    file.write_bytes(lzma.compress(json.dumps(tapes).encode()))


def test_a_recording_answers_as_the_server_did(place: Path) -> None:
    seen = []
    assert run(place, RECORDED, lambda tape: seen.append(tape.take("GET /a", "", lambda: None)), passed=False) == ""
    assert seen == [{"x": 1}]
    assert run(place, RECORDED, asks()) == ""


def test_a_recording_that_was_edited_is_not_believed(place: Path) -> None:
    edit(place, lambda entries: entries[0].__setitem__(2, {"x": 2}))
    with pytest.raises(pytest.fail.Exception, match="not the one that was accepted"):
        run(place, RECORDED, asks())


def test_a_recording_whose_digest_was_edited_too_fails_beside_the_real_server(place: Path) -> None:
    other = place.parent / "other"
    assert run(other, RECORD, asks({"x": 2})) == ""
    assert run(other, RECORDED, asks()) == ""
    assert "says something else than was recorded: compared GET /a" in run(other, LIVE, asks({"x": 1}))


def test_a_changed_answer_is_noticed_and_recorded_only_when_it_is_accepted(place: Path) -> None:
    assert "says something else than was recorded" in run(place, LIVE, asks({"x": 2}))
    assert "says something else than was recorded" in run(place, RECORD, asks({"x": 2}))
    assert run(place, LIVE, asks({"x": 1})) == ""
    assert run(place, RECORD, asks({"x": 2}), accept=True) == ""
    assert run(place, LIVE, asks({"x": 2})) == ""


def test_a_removed_comparison_is_noticed(place: Path) -> None:
    assert "recorded, and not used: compared GET /a" in run(place, RECORDED, asks(compares=False))
    assert "says something else than was recorded: compared GET /a" in run(place, LIVE, asks({"x": 1}, compares=False))


def test_a_removed_request_is_noticed(place: Path) -> None:
    assert "not used: GET /a; compared GET /a" in run(place, RECORDED, lambda tape: None)


def test_a_request_that_is_new_is_recorded_beside_answers_that_stay(place: Path) -> None:
    def more(tape: Tape) -> None:
        asks({"x": 1})(tape)
        assert tape.take("GET /b", "", lambda: "b") == "b"

    assert run(place, RECORD, more) == ""
    assert run(place, RECORDED, more) == ""


def test_another_body_is_recorded_where_the_answer_stays(place: Path) -> None:
    assert run(place, RECORD, asks({"x": 1}, body="new")) == ""
    assert run(place, RECORDED, asks({"x": 1}, body="new")) == ""


def test_what_was_not_recorded_fails(place: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="GET /b is not in its recording"):
        run(place, RECORDED, lambda tape: tape.take("GET /b", "", lambda: None))
    with pytest.raises(pytest.fail.Exception, match="more often than 1 times"):
        run(place, RECORDED, lambda tape: [tape.take("GET /a", "", lambda: None) for _ in range(2)])
    with pytest.raises(pytest.fail.Exception, match="recorded with another body"):
        run(place, RECORDED, asks(body="new"))
    with pytest.raises(pytest.fail.Exception, match="there is no recording of test_x::test_a_thing"):
        run(place.parent / "empty", RECORDED, asks())
    assert "there is no recording of test_x::test_a_thing" in run(place.parent / "empty", LIVE, asks(1))


def test_a_test_that_does_not_pass_changes_nothing(place: Path) -> None:
    before = (place / f"{MODULE}.json.xz").read_bytes()
    assert run(place, RECORD, asks({"x": 3}), accept=True, passed=False) == ""
    assert (place / f"{MODULE}.json.xz").read_bytes() == before


def test_a_test_that_is_gone_loses_its_recording(place: Path) -> None:
    Shelf(place, RECORD).write(MODULE, {"test_another"})
    assert json.loads(lzma.decompress((place / f"{MODULE}.json.xz").read_bytes())) == {}


def test_of_several_attempts_the_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape(NAME, plays=False, keeps=True)
    monkeypatch.setattr(recording, "current", lambda: tape)
    answers = iter((1, 2, 3))
    for _ in recording.attempts("a third answer", pause=0):
        if tape.take("GET /a", "", lambda: next(answers)) == 3:
            break
    assert [entry.value for entry in tape.entries] == [3]


def test_waiting_ends_when_nothing_changes() -> None:
    with pytest.raises(pytest.fail.Exception, match="a thing: nothing has changed for 0 s; last seen: 'the same'"):
        for attempt in recording.attempts("a thing", quiet=0, pause=0):
            attempt.saw("the same")


def test_nothing_that_opens_anything_is_kept() -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJlIG9mIGl0"
    key = "-----BEGIN RSA PRIVATE KEY-----\nTUlJRQ==\n-----END RSA PRIVATE KEY-----"
    found = scrubbed(json.dumps({"token": token, "key": key, "data": base64.b64encode(token.encode()).decode()}))
    assert "c2ln" not in found
    assert "TUlJ" not in found
    assert json.loads(found)["token"].startswith("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.recorded")
    assert len(json.loads(found)["token"]) == len(token)
    assert base64.b64decode(json.loads(found)["data"]).decode() == json.loads(found)["token"]


def test_names_come_from_the_test_and_not_from_the_run() -> None:
    first, second = (Tape(NAME) for _ in range(2))
    assert [first.new_name(), first.new_name()] == [second.new_name(), second.new_name()]
    assert Tape("another").new_name() != Tape(NAME).new_name()
