"""The desired plan of one machine: the files, commands and probes of its host (docs/reference/node-plan.md).

:func:`renderer` gives the planner its `Render`. The order of files is part of the plan's bytes and of its stamps, so it is
defined in one place, here; each file's content has a module of its own. Pure: the same snapshot and facts give the same
bytes, regardless of the order of their parts. Not here: the order of machines (`..decide`), the plan document (`...plans.plan`).
Read :mod:`.context`, then :mod:`.config`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from remuda.kube.waits import Actor

from ... import host_layout as layouts
from ...etcd.file_requests import FileRequest
from ...host_layout import Layout
from ...plans.plan import File, PeriodicInstruction, Plan
from ...releases.catalog import Release
from ..snapshot import (
    CannotRender,
    ClusterSnapshot,
    ControlPlane,
    Join,
    Machine,
    Render,
    ResetMember,
    RestoreSnapshot,
    Rotation,
    Task,
)
from . import (
    certificate_report,
    components,
    config,
    context,
    etcd_restore,
    install,
    manifests,
    registries,
    rotation,
    selector_files,
    snapshots,
)
from . import idempotent_commands as idempotence
from .context import ClusterContext, Config, HostContext
from .plan_inputs import AgentManifest, BuiltInRegistry, Driver, NamedObject, Needs, PlanInputs, Taint, needs

__all__ = [
    "AgentManifest",
    "BuiltInRegistry",
    "Driver",
    "NamedObject",
    "Needs",
    "PlanInputs",
    "Taint",
    "ignored_arguments",
    "needs",
    "renderer",
]


@dataclass(frozen=True)
class _Site(ClusterContext):
    """A cluster with the parts that are made once for all of its hosts.

    Every server applies its own copy of the manifests, so they are the same on all of them: made from all servers, never from one
    host. Servers that disagree would undo each other's work for ever.
    """

    machines: tuple[Machine, ...] = ()

    def is_of(self, snapshot: ClusterSnapshot) -> bool:
        same = self.control_plane is snapshot.control_plane and self.tokens is snapshot.tokens
        return same and self.machines is snapshot.machines

    @cached_property
    def servers(self) -> tuple[Machine, ...]:
        return tuple(machine for machine in self.machines if machine.is_etcd or machine.is_control_plane)

    @cached_property
    def registries(self) -> registries.Registries:
        return registries.render(self)

    @cached_property
    def agent_registries(self) -> list[File]:
        return registries.agent_files(self, self.registries)

    @cached_property
    def idempotence(self) -> File:
        return idempotence.file(self.directories)

    @cached_property
    def agent_manifest(self) -> list[File]:
        return manifests.agent(self, context.taints_of_all(self, self.servers))

    @cached_property
    def charts(self) -> File:
        hosts = (HostContext(self, machine, Join()) for machine in self.servers)
        return manifests.charts(self, {str(config.given(host).get("cloud-provider-name")) for host in hosts})


def renderer(facts: PlanInputs) -> Render:
    """The planner's function for a machine's plan, with these facts; it raises CannotRender."""
    sites: dict[Layout, _Site] = {}

    def render(snapshot: ClusterSnapshot, machine: Machine, join: Join, task: Task | None = None) -> Plan:
        layout = _layout(machine)
        site = sites.get(layout)
        if site is None or not site.is_of(snapshot):
            site = sites[layout] = _Site(snapshot.control_plane, facts, layout, snapshot.tokens, snapshot.machines)
        return _plan(site, machine, join, snapshot, task)

    return render


def ignored_arguments(release: Release, control_plane: ControlPlane, machines: Iterable[Machine] = ()) -> tuple[str, ...]:
    """The arguments of a cluster's spec that have no effect, each with the reason."""
    try:
        return config.ignored(ClusterContext(control_plane, PlanInputs(release), layouts.PLAIN), machines)
    except CannotRender:
        # A selector can't be read: that is told of the machines whose plans wait for it.
        return ()


def _layout(machine: Machine) -> Layout:
    try:
        return layouts.of_annotations(machine.plan_annotations)
    except layouts.LayoutError as error:
        raise CannotRender(str(error), Actor.MACHINE, machine.ref()) from None


def _plan(site: _Site, machine: Machine, join: Join, snapshot: ClusterSnapshot, task: Task | None) -> Plan:
    if machine.is_windows:
        raise CannotRender(f"machine {machine.name} runs Windows, which is not offered yet", Actor.USER, machine.ref())
    host = HostContext(site, machine, join)
    files: list[File] = []
    told: Config = {}
    drain_content: dict[str, str] = {}
    if not site.spec.get("unmanagedConfig"):
        files, told = _files(site, host, snapshot.pre_bootstrap, with_s3=not isinstance(task, RestoreSnapshot | ResetMember))
        drain_content[config.path(site)] = install.worth_a_drain(told)
    if isinstance(task, Rotation):
        return rotation.plan(host, task, files, told)
    if task is not None and not isinstance(task, etcd_restore.TASKS):
        return Plan(files=tuple(files), instructions=(install.without_start(host), snapshots.save_instruction(host, task)))
    requests = () if task is not None else snapshot.file_requests.get(machine.name, ())
    normal = Plan(
        files=(*files, *snapshots.file_programs(host, requests)),
        instructions=(install.instruction(host, files, drain_content),),
        # An instruction that fails keeps those after it from running: so the least important is the last.
        periodicInstructions=(*install.instructions(host), *_reports(host, told, requests)),
        probes=components.probes(host, told),
    )
    return normal if task is None else etcd_restore.plan(host, task, normal)


def _reports(host: HostContext, told: Config, requests: Sequence[FileRequest]) -> Iterator[PeriodicInstruction]:
    if host.machine.is_etcd:
        if requests:
            yield snapshots.file_instruction(host, told, requests)
        yield snapshots.report_instruction(host, told)
    yield certificate_report.instruction(host)


def _files(site: _Site, host: HostContext, pre_bootstrap: bool, *, with_s3: bool = True) -> tuple[list[File], Config]:
    """All files in the plan's order, and the configuration among them."""
    found, spoken_of = config.config(host, with_s3=with_s3)
    of_arguments = selector_files.from_arguments(site, found, site.registries.content)
    told = config.pruned(found)
    files = [
        *site.agent_registries,
        *spoken_of,
        *of_arguments,
        *selector_files.selected(host),
        config.file(site, told),
        *manifests.files(host, site.agent_manifest, pre_bootstrap),
    ]
    if host.is_server:
        files.append(site.charts)
    return [*files, *config.authorized_endpoint_files(host), site.idempotence], told
