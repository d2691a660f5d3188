"""All scenarios by name. None needs more than a World; each has a cluster, named in it, of its own."""

from __future__ import annotations

from . import belonging, births, endings, health, latecomers, lies, rollouts, sizes
from .stage import Scenario

_ALL: tuple[Scenario, ...] = (
    births.a_cluster_comes_up,
    births.a_machine_alone,
    births.a_set_alone,
    sizes.growing_and_shrinking,
    sizes.newest_first,
    sizes.oldest_first,
    sizes.any_first,
    sizes.marked_first,
    sizes.broken_first,
    rollouts.one_more_at_a_time,
    rollouts.one_fewer_at_a_time,
    rollouts.all_at_once,
    rollouts.changed_again_in_the_middle,
    rollouts.stuck_and_taken_back,
    rollouts.scaled_in_the_middle,
    rollouts.on_delete,
    rollouts.a_template_edited_in_place,
    rollouts.spread_in_place,
    rollouts.paused_by_annotation,
    rollouts.a_paused_cluster,
    health.one_is_replaced,
    health.a_short_silence_is_nothing,
    health.a_storm_is_waited_out,
    health.a_storm_that_calms_down,
    health.only_in_a_range,
    health.one_after_the_other,
    health.one_that_never_starts,
    health.skipped,
    health.while_its_provider_hangs,
    endings.a_budget_blocks_the_drain,
    endings.rules_order_the_drain,
    endings.a_drain_gives_up,
    endings.hooks,
    endings.workers_before_the_rest,
    lies.machines_that_are_taken_back,
    lies.secrets_that_are_taken_back,
    lies.clusters_that_are_taken_back,
    lies.objects_that_vanish,
    belonging.a_machine_finds_its_set_again,
    belonging.a_set_finds_its_deployment_again,
    belonging.a_set_takes_over_a_machine_of_nobody,
    belonging.a_deployment_takes_over_a_set_of_nobody,
    belonging.everything_loses_its_parents,
    latecomers.a_provider_comes_later,
)

SCENARIOS: dict[str, Scenario] = {scenario.__name__: scenario for scenario in _ALL}
