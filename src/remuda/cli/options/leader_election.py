"""The options of leader election, the same for `serve` and `controllers`: names and defaults of Kubernetes' own components."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .locations import parse_interval

if TYPE_CHECKING:
    from remuda.runtime import Term

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--leader-elect-lease-duration",
        type=parse_interval,
        metavar="DURATION",
        default="15s",
        show_default=True,
        help="How long others wait for a leader that is silent.",
    ),
    click.option(
        "--leader-elect-renew-deadline",
        type=parse_interval,
        metavar="DURATION",
        default="10s",
        show_default=True,
        help="How long a leader tries to renew before it stops.",
    ),
    click.option(
        "--leader-elect-retry-period",
        type=parse_interval,
        metavar="DURATION",
        default="2s",
        show_default=True,
        help="How often it tries.",
    ),
)


def leader_options(function: _Function) -> Callable[..., Any]:
    """Adds them; the function gets one `term: remuda.runtime.Term`."""

    @functools.wraps(function)
    def with_options(
        *args: Any,
        leader_elect_lease_duration: float,
        leader_elect_renew_deadline: float,
        leader_elect_retry_period: float,
        **others: Any,
    ) -> Any:
        term = _term(leader_elect_lease_duration, leader_elect_renew_deadline, leader_elect_retry_period)
        return function(*args, term=term, **others)

    found: Callable[..., Any] = with_options
    for option in reversed(_OPTIONS):
        found = option(found)
    return found


def _term(lease: float, renew: float, retry: float) -> Term:
    from remuda.runtime import Term

    try:
        return Term(lease, renew, retry)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--leader-elect-lease-duration") from error
