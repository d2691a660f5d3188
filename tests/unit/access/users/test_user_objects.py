"""User objects: what a login name may be, and whom it means."""

from __future__ import annotations

import pytest

from remuda.access.users.user_objects import (
    FIRST_PREFIX,
    is_enabled,
    local_principal,
    meant_by,
    name_problem,
    text_problem,
    user_id,
    user_manifest,
)
from remuda.kube.clock import Entropy


@pytest.mark.parametrize("name", ["admin", "jo.doe@example.com", "größe", "山田", "a", "x" * 128, "u-1_2+3", "日本🎉"])
def test_a_login_name_is_one_visible_word(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a\tb",
        # Would begin a header or a log line of its own.
        "admin\r\nX-Admin: true",
        "admin\n",
        "admin\x00",
        "admin\x1b[2J",
        # Looks like another name: nothing visible, the other direction, wide letters, a ligature.
        "admin\u200b",
        "\u202enimda",
        "\u00a0admin",
        "ａｄｍｉｎ",
        "ﬁrst",
        "\ud800",
        "x" * 129,
    ],
)
def test_what_hides_or_breaks_a_line_is_no_login_name(name: str) -> None:
    assert name_problem(name)
    assert name not in name_problem(name) or not name.strip()


@pytest.mark.parametrize(("text", "fits"), [("Jo Doe", True), ("", True), ("a\nb", False), ("a\x7f", False), ("x" * 1025, False)])
def test_a_description_is_one_line(text: str, fits: bool) -> None:
    assert (text_problem("the description", text) == "") is fits


def test_a_user_is_known_to_the_local_provider_by_its_id() -> None:
    identity = user_id(Entropy(1), FIRST_PREFIX)
    made = user_manifest(identity, "admin", must_change_password=True)
    assert identity.startswith("user-") and len(identity) == 10
    assert made["principalIds"] == [local_principal(identity)] == [f"local://{identity}"]
    assert made["mustChangePassword"] is True
    assert "password" not in made


@pytest.mark.parametrize(
    ("user", "enabled"),
    [
        ({"metadata": {}}, True),
        ({"metadata": {}, "enabled": None}, True),
        ({"metadata": {}, "enabled": False}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
    ],
)
def test_who_is_disabled_or_on_the_way_out_is_not_let_in(user: dict[str, object], enabled: bool) -> None:
    assert is_enabled(user) is enabled


def test_a_login_name_means_the_oldest_user() -> None:
    def made(name: str, at: str) -> dict[str, object]:
        return {"metadata": {"name": name, "creationTimestamp": at}, "username": "admin"}

    late, early = made("u-aaaaa", "2026-02-01T00:00:00Z"), made("u-zzzzz", "2026-01-01T00:00:00Z")
    assert meant_by([late, early]) is early
    assert meant_by([made("u-b", "2026-01-01T00:00:00Z"), early]) == made("u-b", "2026-01-01T00:00:00Z")
    assert meant_by([]) is None
