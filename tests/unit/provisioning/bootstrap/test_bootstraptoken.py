"""How long the token of an install script is good, and for whom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import rfc3339
from remuda.kube.objects import annotations_of
from remuda.provisioning.bootstrap.bootstraptoken import BootstrapTokens, TokenValidity, end_of, is_good, refusal
from remuda.provisioning.well_known import LAST_ACCESS, TOKEN_INVALIDATED
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import FLEET, Machines, machines

Obj = dict[str, Any]
NOW = 1_800_000_000.0
TERMS = TokenValidity()


def token(age: float = 0.0, used: float | None = None, **marks: str) -> Obj:
    annotations = {
        "rke.cattle.io/bootstrap-token": "true",
        "kubernetes.io/service-account.name": "m1-machine-bootstrap",
        "kubernetes.io/service-account.uid": "u-account",
        **{f"rke.cattle.io/{key.replace('_', '-')}": value for key, value in marks.items()},
    }
    if used is not None:
        annotations[LAST_ACCESS] = rfc3339(NOW - used)
    meta = {"name": "t", "namespace": FLEET, "creationTimestamp": rfc3339(NOW - age), "annotations": annotations}
    return {"kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": meta}


def owned(name: str, uid: str, owner: str, **labels: str) -> Obj:
    marks = {f"rke.cattle.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {"metadata": {"name": name, "namespace": FLEET, "uid": uid, "labels": marks, "ownerReferences": [{"uid": owner}]}}


ACCOUNT = owned(
    "m1-machine-bootstrap",
    "u-account",
    "u-bootstrap",
    service_account_role="bootstrap",
    rkebootstrap_name="m1",
    machine_name="m1",
)
PLANS_ACCOUNT = owned(
    "m1-machine-bootstrap", "u-account", "u-bootstrap", service_account_role="plan", rkebootstrap_name="m1", machine_name="m1"
)
BOOTSTRAP, MACHINE = owned("m1", "u-bootstrap", "u-machine"), owned("m1", "u-machine", "")


@pytest.mark.parametrize(
    ("age", "used", "good"),
    [(0, None, True), (1799, None, True), (1800, None, False), (10, 0, True), (1799, 1700, True), (1800, 1, False)],
)
def test_it_expires_half_an_hour_after_it_was_made_however_long_ago_it_was_used(
    age: float, used: float | None, good: bool
) -> None:
    assert is_good(token(age, used), TERMS, NOW) is good


def test_use_in_the_future_does_not_make_it_last_longer() -> None:
    assert end_of(token(1700, -86400), TERMS) == NOW + 100


def test_what_is_marked_stays_ended_whatever_the_terms() -> None:
    marked = token(0, None, bootstrap_token_invalidated="true")
    assert not is_good(marked, TokenValidity(ends=False), NOW) and is_good(token(86400), TokenValidity(ends=False), NOW)


def test_it_lets_in_the_host_of_its_machine() -> None:
    assert refusal(token(), ACCOUNT, BOOTSTRAP, MACHINE, "a" * 63, TERMS, NOW) == ""
    known = owned("m1", "u-machine", "", machine_id="a" * 63)
    assert refusal(token(1, 5), ACCOUNT, BOOTSTRAP, known, "a" * 63, TERMS, NOW) == "", "it asks again, not having heard"


def test_it_ends_when_its_host_has_acted_with_what_it_got() -> None:
    known = owned("m1", "u-machine", "", machine_id="a" * 63)
    ended = "the token was for one registration, and its host has begun to work"
    assert refusal(token(1, 1), ACCOUNT, BOOTSTRAP, known, "a" * 63, TERMS, NOW, acted=True) == ended
    assert refusal(token(1, 1), ACCOUNT, BOOTSTRAP, known, "a" * 63, TERMS, NOW, acted=True, proven=True) == ""
    assert refusal(token(1, 1), ACCOUNT, BOOTSTRAP, known, "a" * 63, TokenValidity(ends=False), NOW, acted=True) == "", (
        "it never ends"
    )


def test_a_host_that_proves_which_it_is_needs_no_token_that_is_still_good() -> None:
    known = owned("m1", "u-machine", "", machine_id="a" * 63)
    assert refusal(token(9999), ACCOUNT, BOOTSTRAP, known, "a" * 63, TERMS, NOW) == "the token has expired"
    assert refusal(token(9999), ACCOUNT, BOOTSTRAP, known, "a" * 63, TERMS, NOW, proven=True) == ""
    assert refusal(token(9999), ACCOUNT, BOOTSTRAP, None, "a" * 63, TERMS, NOW, proven=True)


def test_another_host_with_the_same_token_is_refused() -> None:
    known = owned("m1", "u-machine", "", machine_id="a" * 63)
    assert refusal(token(1, 5), ACCOUNT, BOOTSTRAP, known, "b" * 63, TERMS, NOW) == "the machine is another host already"
    assert refusal(token(), ACCOUNT, BOOTSTRAP, MACHINE, "", TERMS, NOW)


@pytest.mark.parametrize(
    ("account", "bootstrap", "machine"),
    [
        (None, BOOTSTRAP, MACHINE),
        ({**ACCOUNT, "metadata": {**ACCOUNT["metadata"], "uid": "u-another"}}, BOOTSTRAP, MACHINE),
        (ACCOUNT, None, MACHINE),
        (ACCOUNT, BOOTSTRAP, None),
        (ACCOUNT, owned("m1", "u-other", "u-machine"), MACHINE),
        (ACCOUNT, owned("m1", "u-bootstrap", "u-older"), MACHINE),
        (ACCOUNT, BOOTSTRAP, owned("m2", "u-machine", "")),
        (PLANS_ACCOUNT, BOOTSTRAP, MACHINE),
    ],
)
def test_it_opens_nothing_but_what_it_was_made_for(account: Obj | None, bootstrap: Obj | None, machine: Obj | None) -> None:
    assert refusal(token(), account, bootstrap, machine, "a" * 63, TERMS, NOW)


# --- the controller -------------------------------------------------------------------------------------------------------


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield BootstrapTokens(parts.manager)


async def made_token(made: Machines) -> None:
    meta = {
        "name": "t",
        "namespace": FLEET,
        "labels": {"cattle.io/service-account.name": "a"},
        "annotations": {"rke.cattle.io/bootstrap-token": "true"},
    }
    await made.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta})


async def is_marked(made: Machines) -> bool:
    return annotations_of(await made.get(SECRETS, "t", FLEET)).get(TOKEN_INVALIDATED) == "true"


async def test_an_unused_token_is_marked_after_half_an_hour() -> None:
    async with machines(controllers) as made:
        await made_token(made)
        await made.settle(1790)
        assert not await is_marked(made)
        await made.settle(15)
        assert await is_marked(made)


async def test_settings_count_at_once() -> None:
    async with machines(controllers) as made:
        await made.setting("system-agent-installer-token-ttl-enabled", "false")
        await made_token(made)
        await made.settle(7200)
        assert not await is_marked(made)
        await made.setting("system-agent-installer-token-ttl-enabled", "true")
        await made.settle(1)
        assert await is_marked(made)


async def test_a_token_is_marked_also_by_controllers_that_come_later() -> None:
    async with machines(controllers, begin=False) as made:
        await made_token(made)
        await made.settle(3600)
        made.begin()
        await made.settle(1)
        assert await is_marked(made)
