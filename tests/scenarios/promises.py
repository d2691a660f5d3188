"""What is promised of provisioned clusters, and the tests that prove it: as `FILE::TEST`, below `tests/`.

In memory (`scenarios/`) everything runs on the embedded API by a virtual clock; with real hosts (`e2e/`) only the nodes' pods are
simulated. `test_promises.py` sees to it that every test of the table is there, and that every promise is kept on both back ends:
on our own API, and on a real kube-apiserver (`ON_KUBERNETES`), unless no API has a part in it (`PURE`).
"""

from __future__ import annotations

_LIVES = "scenarios/test_provisioning.py::"
_TROUBLE = "scenarios/test_provisioning_trouble.py::"
_MIDDLE = "scenarios/test_provisioning_middle.py::"
_ANY_MOMENT = "scenarios/test_provisioning_any_moment.py::test_whichever_write_is_the_last_the_same_comes_of_it"
_LIFE = f"{_LIVES}test_a_cluster_is_built_upgraded_in_order_and_leaves_nothing"
_WHOLE_WAY = "e2e/provisioning/test_whole_way.py::"
_UPGRADED_AND_GONE = f"{_WHOLE_WAY}test_a_host_becomes_a_cluster_that_is_upgraded_and_goes"
_REAL_LIVES = "e2e/provisioning/test_lives.py::"
_SPLIT = f"{_REAL_LIVES}test_roles_of_their_own_with_trouble_in_the_middle"
_SERVERS = f"{_REAL_LIVES}test_servers_and_workers_are_drained_and_upgraded_and_servers_come_and_go"
_MIRRORED = "e2e/provisioning/test_registries.py::test_a_cluster_is_installed_through_a_mirror_once_its_password_is_right"
_LET_IN = "e2e/access/test_registering.py::test_the_command_says_why_a_host_is_not_let_in"
_LAWS = "unit/provisioning/planner/test_laws.py::"

_RESTORED = "e2e/provisioning/test_restoring.py::test_what_was_there_comes_back_and_what_came_later_is_gone"
_ROTATED = "e2e/provisioning/test_rotation.py::test_certificates_and_keys_of_three_servers_are_rotated"
_RECOVERED = "e2e/provisioning/test_recovering.py::test_new_hosts_take_the_places_of_lost_ones"
_LEFT = "e2e/provisioning/test_recovering.py::test_a_server_that_is_left_goes_on_with_all_that_was_stored"
_RESTORING = "scenarios/test_restoring.py::"
_RECOVERING = "scenarios/test_recovering.py::"
_ROTATION = "scenarios/test_rotation.py::"
_RANDOM = "scenarios/day2/test_random_clusters.py::test_every_operation_ends_or_says_for_what_it_waits"

# Those of `e2e/access`, of the mirror and of the whole way run on both; restores, recoveries and rotations on the second under
# `make soak`.
ON_KUBERNETES = (_UPGRADED_AND_GONE, _SPLIT, _SERVERS, _MIRRORED, _LET_IN, _RESTORED, _RECOVERED, _LEFT, _ROTATED)
ON_OUR_OWN = ("scenarios/", _WHOLE_WAY, _MIRRORED, _LET_IN)

PROMISES: dict[str, tuple[str, ...]] = {
    "one node with all roles": (
        _LIFE,
        # On our API, on a real kube-apiserver and with upstream's Cluster API.
        _UPGRADED_AND_GONE,
    ),
    "three servers and two workers": (_LIFE, f"{_WHOLE_WAY}test_members_of_etcd_come_and_go", _SERVERS),
    "one host for each role": (
        _LIFE,
        "e2e/distro/test_split_roles.py::test_etcd_control_plane_and_worker_are_hosts_of_their_own",
        _SPLIT,
    ),
    "a host comes during an upgrade": (
        f"{_LIVES}test_a_host_that_comes_during_an_upgrade_joins_in_the_end",
        f"{_MIDDLE}test_whoever_comes_during_an_upgrade_joins_with_the_new_version",
        _SPLIT,
    ),
    "etcd of three, one, three": (
        f"{_LIVES}test_machines_come_and_go_while_etcd_keeps_its_majority",
        f"{_MIDDLE}test_etcd_shrinks_to_one_and_grows_to_three_again",
        f"{_WHOLE_WAY}test_members_of_etcd_come_and_go",
        _SERVERS,
    ),
    "the first server is deleted": (
        f"{_MIDDLE}test_the_first_server_is_deleted_in_the_middle_of_its_upgrade",
        f"{_MIDDLE}test_a_first_server_that_dies_before_anybody_joined_is_followed_by_another",
        f"{_TROUBLE}test_without_any_member_of_etcd_only_a_snapshot_helps",
        f"{_WHOLE_WAY}test_members_of_etcd_come_and_go",
        _SERVERS,
        f"{_LAWS}test_a_machine_that_goes_leaves_one_cluster",
    ),
    "an upgrade with drains and hooks": (
        f"{_TROUBLE}test_nodes_are_drained_and_hooks_have_their_say",
        f"{_MIDDLE}test_servers_are_drained_one_after_the_other_and_their_hooks_have_their_say",
        f"{_MIDDLE}test_a_drain_respects_what_must_stay_up_and_says_what_it_waits_for",
        _SPLIT,
        _SERVERS,
    ),
    "concurrency of 1, 2, 50 % and 0": (
        f"{_TROUBLE}test_workers_change_as_many_at_once_as_may",
        f"{_MIDDLE}test_control_planes_change_as_many_at_once_as_may_and_etcd_one_by_one",
        _SERVERS,
    ),
    "a change that restarts and one that must not": (
        f"{_LIVES}test_what_is_minor_restarts_nobody_and_what_is_not_restarts_each_once",
        f"{_LIVES}test_the_agents_manifest_follows_its_token_without_a_restart",
        f"{_MIDDLE}test_a_change_of_mind_in_the_middle_is_followed",
        _SPLIT,
    ),
    "registries with mirrors and passwords": (
        "e2e/provisioning/test_registries.py::test_an_image_is_fetched_from_a_real_registry",
        _MIRRORED,
    ),
    "a wrong token": (
        "unit/gateway/registration/test_node_registration.py::test_registration_needs_a_token_for_nodes_and_an_id",
        "unit/provisioning/nodes/test_host_registration.py::test_a_token_that_nobody_made_opens_nothing",
        _LET_IN,
        "e2e/distro/test_joining.py::test_who_may_not_join_is_told_why",
    ),
    "a wrong mix of roles": (
        f"{_MIDDLE}test_a_mix_of_roles_that_makes_no_cluster_waits_for_the_one_that_is_missing",
        f"{_MIDDLE}test_a_host_without_a_role_is_refused_with_the_reason",
        _SPLIT,
    ),
    "a name that another host has": (
        f"{_LIVES}test_a_host_is_refused_with_the_reason",
        "unit/provisioning/nodes/test_unmanaged.py::test_a_host_whose_name_another_machine_has_is_refused",
        _LET_IN,
        "e2e/distro/test_joining.py::test_who_may_not_join_is_told_why",
    ),
    "a host dies in the middle of a plan": (
        f"{_TROUBLE}test_a_host_that_dies_in_the_middle_holds_up_the_others_and_is_named",
        f"{_MIDDLE}test_a_host_that_loses_its_power_in_the_middle_goes_on_when_it_is_back",
        f"{_MIDDLE}test_a_host_that_never_comes_back_is_deleted_and_the_others_go_on",
        f"{_MIDDLE}test_a_cluster_with_a_dead_host_goes_in_the_middle_of_an_upgrade",
        _SPLIT,
    ),
    "an agent is killed in the middle of a plan": (
        f"{_MIDDLE}test_an_agent_that_is_killed_in_the_middle_takes_up_its_plan_again",
        "integration/agent/test_remote_mode.py::test_an_agent_killed_around_any_write_runs_the_plan_once",
        _SPLIT,
    ),
    "a plan fails three times and then heals": (
        f"{_LIVES}test_a_plan_that_fails_is_tried_again_for_everybody_to_see",
        f"{_LIVES}test_a_failed_upgrade_stops_the_wave_and_says_where",
        f"{_LAWS}test_every_cluster_gets_there",
        _MIRRORED,
    ),
    "an API is away for minutes": (
        # The management API; the cluster's own; the server's process; a kube-apiserver that hangs.
        f"{_MIDDLE}test_an_api_that_is_away_for_minutes_is_waited_for",
        f"{_TROUBLE}test_a_cluster_that_is_away_for_minutes_is_told_of_and_left_as_it_is",
        _UPGRADED_AND_GONE,
        _SPLIT,
    ),
    # One write of each kind of change by default, all of them under `make soak`; on a real kube-apiserver in the middle of one.
    "controllers are killed at any write": (
        _ANY_MOMENT,
        "unit/provisioning/test_interruptions.py::test_whichever_write_is_the_last_the_end_is_the_same",
        f"{_LAWS}test_a_death_between_any_two_writes_changes_nothing",
        _UPGRADED_AND_GONE,
    ),
    "all of it at once": (
        "scenarios/test_provisioning_weather.py::test_after_any_storm_there_is_the_cluster_that_is_wanted",
        _SPLIT,
    ),
    "a snapshot brings a cluster back, also one that has lost its servers": (
        f"{_RESTORING}test_what_was_there_comes_back_and_what_came_later_is_gone",
        f"{_RESTORING}test_the_spec_comes_back_as_far_as_it_is_asked_for",
        "scenarios/test_restoring_from_buckets.py::test_the_server_looks_first_and_then_a_host_restores",
        "scenarios/test_upgrade_snapshot.py::test_the_way_back_and_another_upgrade",
        f"{_RECOVERING}test_registered_hosts_take_the_places_of_lost_ones",
        f"{_RECOVERING}test_pools_make_new_servers_and_keep_their_workers",
        f"{_RECOVERING}test_a_server_that_is_left_goes_on_with_all_that_was_stored",
        f"{_RECOVERING}test_it_works_after_the_management_server_was_restored_from_its_own_backup",
        _RESTORED,
        _RECOVERED,
        _LEFT,
        "e2e/machines/test_pool_recovery.py::test_a_new_server_is_made_from_what_the_bucket_and_a_backup_have",
    ),
    "a restore that can not succeed changes nothing": (
        f"{_RESTORING}test_a_restore_that_can_not_succeed_changes_nothing",
        "scenarios/test_restoring_from_buckets.py::test_what_can_not_be_restored_is_refused_while_the_cluster_runs",
        _RESTORED,
    ),
    "operations survive the server, agents and hosts, and end or name who must act": (
        _RANDOM,
        f"{_RESTORING}test_it_goes_on_wherever_the_server_and_the_agents_are_killed",
        f"{_RESTORING}test_a_host_that_loses_its_power_in_the_middle_goes_on_when_it_is_back",
        _RESTORED,
    ),
    "certificates and encryption keys are rotated in turns": (
        f"{_ROTATION}test_certificates_are_rotated_in_turns",
        f"{_ROTATION}test_expired_certificates_of_a_cluster_that_was_switched_off_are_rotated",
        f"{_ROTATION}test_keys_are_rotated_twice",
        _ROTATED,
    ),
    "never beyond concurrency, never below quorum, never without progress or a wait, and idempotent": (
        f"{_LAWS}test_no_picture_leads_to_harm",
        f"{_LAWS}test_what_was_decided_is_not_decided_again",
        f"{_LAWS}test_the_order_of_machines_is_no_matter",
        f"{_LAWS}test_whoever_waits_says_for_what",
        f"{_LAWS}test_hosts_that_do_as_they_are_told_end_all_trouble",
        f"{_LAWS}test_a_host_that_died_unnoticed_costs_no_quorum",
    ),
    "names, hashes and shapes as the original's": (
        "unit/provisioning/graph/test_name_goldens.py::test_names_are_put_together_and_cut",
        "unit/provisioning/graph/test_name_goldens.py::test_templates_are_hashed",
        "unit/provisioning/planner/render/test_config.py::test_a_first_server_with_all_roles_is_told_what_the_example_says",
        "unit/provisioning/plans/test_plan.py::test_a_plan_is_written_in_the_originals_order_without_empty_members",
        "unit/provisioning/planner/test_object_conversion.py::test_a_plan_is_written_as_agents_look_for_it",
        "unit/provisioning/plans/test_machine_plan_secret.py::test_a_new_plan_is_pending_and_knows_no_probes",
    ),
}

# Decisions and texts, made of what is there without asking anybody.
PURE = (
    "never beyond concurrency, never below quorum, never without progress or a wait, and idempotent",
    "names, hashes and shapes as the original's",
)
