"""The options of Cluster API's core, the same for `serve` and `controllers`: names and defaults of upstream's manager."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .locations import parse_interval

if TYPE_CHECKING:
    from remuda.runtime import LeaseTerm
    from remuda.runtime.controller_table import ControllerChoice

_Function = TypeVar("_Function", bound=Callable[..., Any])

_CHECKS = ("All", "KubeadmVersionSkew", "KubernetesVersionSkew", "ControlPlaneIsStable", "ControlPlaneVersionSkew", "None")


def _checks(text: str | frozenset[str]) -> frozenset[str]:
    if isinstance(text, frozenset):
        return text
    found = frozenset(part.strip() for part in text.split(",") if part.strip())
    if unknown := sorted(found - set(_CHECKS)):
        raise click.BadParameter(f"unknown check {unknown[0]!r}; known checks: {', '.join(_CHECKS)}")
    return found - {"None"}


def _patterns(text: str | tuple[re.Pattern[str], ...]) -> tuple[re.Pattern[str], ...]:
    if isinstance(text, tuple):
        return text
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(re.compile(part))
        except re.error as error:
            raise click.BadParameter(f"{part!r} is not a regular expression: {error}") from error
    return tuple(found)


_OPTIONS = (
    click.option(
        "--namespace",
        metavar="NAMESPACE",
        default="",
        help="Reconcile Cluster API's objects of this namespace only.  [default: all]",
    ),
    click.option(
        "--watch-filter",
        metavar="VALUE",
        default="",
        help="Only objects whose label cluster.x-k8s.io/watch-filter has this value.",
    ),
    click.option(
        "--sync-period",
        type=parse_interval,
        metavar="DURATION",
        default="10m",
        show_default=True,
        help="The interval at which all objects are reconciled again.",
    ),
    click.option(
        "--concurrency",
        metavar="COUNT",
        type=click.IntRange(1, 1000),
        default=10,
        show_default=True,
        help="The number of objects of a kind that are reconciled at a time.",
    ),
    click.option(
        "--machineset-preflight-checks",
        type=_checks,
        metavar="LIST",
        default="All",
        show_default=True,
        help="Checks that must pass before machines are made: All, None, or some of "
        + ", ".join(check for check in _CHECKS if check not in ("All", "None"))
        + ".",
    ),
    click.option(
        "--additional-sync-machine-labels",
        type=_patterns,
        metavar="REGEXES",
        default="",
        help="Labels of Machines that their nodes get as well.",
    ),
    click.option(
        "--additional-sync-machine-annotations",
        type=_patterns,
        metavar="REGEXES",
        default="",
        help="Annotations of Machines that their nodes get as well.",
    ),
    click.option(
        "--remote-connection-grace-period",
        type=parse_interval,
        metavar="DURATION",
        default="50s",
        show_default=True,
        help="The time that a cluster may be silent before its connection counts as down.",
    ),
    click.option(
        "--remote-conditions-grace-period",
        type=parse_interval,
        metavar="DURATION",
        default="5m",
        show_default=True,
        help="The time after that in which the last known state of its nodes is still used.",
    ),
)


def core_options(function: _Function) -> Callable[..., Any]:
    """Adds them; the function gets one `options: remuda.capi.controller_context.Options`."""

    @functools.wraps(function)
    def with_options(
        *args: Any,
        namespace: str,
        watch_filter: str,
        sync_period: float,
        concurrency: int,
        machineset_preflight_checks: frozenset[str],
        additional_sync_machine_labels: tuple[re.Pattern[str], ...],
        additional_sync_machine_annotations: tuple[re.Pattern[str], ...],
        remote_connection_grace_period: float,
        remote_conditions_grace_period: float,
        **others: Any,
    ) -> Any:
        from remuda.capi.controller_context import ControllerOptions

        # As upstream has it: a node must not be called unknown before its cluster is.
        if remote_conditions_grace_period <= max(remote_connection_grace_period, 119.0):
            raise click.BadParameter(
                "must be at least 2m and longer than --remote-connection-grace-period",
                param_hint="--remote-conditions-grace-period",
            )
        options = ControllerOptions(
            namespace=namespace,
            watch_filter=watch_filter,
            sync_period=sync_period,
            concurrency=concurrency,
            preflight_checks=machineset_preflight_checks,
            additional_sync_labels=additional_sync_machine_labels,
            additional_sync_annotations=additional_sync_machine_annotations,
            remote_connection_grace=remote_connection_grace_period,
            remote_conditions_grace=remote_conditions_grace_period,
        )
        return function(*args, options=options, **others)

    found: Callable[..., Any] = with_options
    for option in reversed(_OPTIONS):
        found = option(found)
    return found


# --- controller choice ----------------------------------------------------------------------------------------------------
#
# `--controllers`: which of them run, and the sentence for one that does not exist.

controllers_option = click.option(
    "--controllers",
    "wanted",
    metavar="LIST",
    default="*",
    show_default=True,
    help="Controllers to run: * for all, a for one, -a for all but one.",
)


def chosen_by(choose: Callable[[str], ControllerChoice], wanted: str) -> ControllerChoice:
    """The value of `--controllers`."""
    from remuda.runtime.controller_table import UnknownController

    try:
        return choose(wanted)
    except UnknownController as error:
        raise click.BadParameter(str(error), param_hint="--controllers") from error


# --- leader election -------------------------------------------------------------------------------------------------------
#
# The options of leader election, the same for `serve` and `controllers`: names and defaults of Kubernetes' own components.

_ELECTION = (
    click.option(
        "--leader-elect-lease-duration",
        type=parse_interval,
        metavar="DURATION",
        default="15s",
        show_default=True,
        help="The time that other replicas wait for a silent leader.",
    ),
    click.option(
        "--leader-elect-renew-deadline",
        type=parse_interval,
        metavar="DURATION",
        default="10s",
        show_default=True,
        help="The time that a leader tries to renew before it stops.",
    ),
    click.option(
        "--leader-elect-retry-period",
        type=parse_interval,
        metavar="DURATION",
        default="2s",
        show_default=True,
        help="The interval between attempts.",
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
    for option in reversed(_ELECTION):
        found = option(found)
    return found


def _term(lease: float, renew: float, retry: float) -> LeaseTerm:
    from remuda.runtime import LeaseTerm

    try:
        return LeaseTerm(lease, renew, retry)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--leader-elect-lease-duration") from error
