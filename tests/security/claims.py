"""Which tests show what docs/security.md claims. :mod:`.test_claims` holds both together."""

from __future__ import annotations

_DOOR = "tests/integration/gateway/test_handler.py"
_LOGIN = "tests/integration/gateway/auth/test_login.py"
_CSRF = "tests/unit/gateway/server/test_csrf.py"
_HEADERS = "tests/unit/gateway/server/test_headers.py"
_JOINING = "tests/unit/gateway/registration/test_node_registration.py"
_TUNNELS = "tests/integration/gateway/agents/test_tunnels.py"
_PROXY = "tests/integration/gateway/proxy/test_cluster_proxy.py"
_TRYING = "tests/e2e/access/test_security.py"
_MORE = "tests/e2e/access/test_security_more.py"
_PLANS = "tests/e2e/access/test_plan_tokens.py"
_RUNNING = "tests/e2e/access/test_running_code.py"
_ROUTES = "tests/security/test_routes.py"
_SOURCES = "tests/security/test_sources.py"
_HOLES = "tests/security/test_holes.py"
_DISK = "tests/security/test_disk.py"
_PEOPLE = "tests/unit/machines/nodedrivers/test_permissions.py"
_BODIES = "tests/integration/apiserver/limits/test_caller_caps.py"
_HANDOVER = "tests/integration/apiserver/keys/test_ca_handover.py"
_JOBS = "tests/unit/machines/runner/test_job_rules.py"
_REFERENCES = "tests/security/test_references.py"
_USED = "tests/security/test_references_used.py"
_ADDRESSES = "tests/security/test_addresses.py"
_SEALING = "tests/unit/machines/secretfields/test_secret_fields.py"
_OUTBOUND = "tests/security/test_outbound.py"
_STEVE = "tests/integration/gateway/rancher/test_steve.py"

TESTS: dict[str, tuple[str, ...]] = {
    "S1": (
        f"{_ROUTES}::test_every_path_of_the_server_that_needs_no_user_is_listed",
        f"{_ROUTES}::test_no_other_path_of_the_server_answers_without_a_valid_credential",
        f"{_ROUTES}::test_a_host_that_says_its_id_is_still_asked_for_its_token",
        f"{_ROUTES}::test_the_api_requires_a_credential_and_health_does_not",
        f"{_ROUTES}::test_every_path_of_a_clusters_supervisor_is_listed",
        f"{_ROUTES}::test_every_path_of_the_small_doors_is_listed",
        f"{_DOOR}::test_requests_without_a_token_are_refused",
        f"{_TRYING}::test_without_a_token_that_is_known_there_is_nothing",
    ),
    "S2": (
        f"{_LOGIN}::test_answers_do_not_reveal_which_users_exist",
        f"{_LOGIN}::test_an_unknown_name_costs_as_much_work_as_a_known_one",
        f"{_LOGIN}::test_failed_logins_delay_the_next_for_known_and_unknown_names",
        "tests/unit/access/users/test_passwords.py::test_an_unknown_user_takes_as_long_as_a_known_one",
    ),
    "S3": (f"{_SOURCES}::test_secrets_are_compared_in_constant_time_or_by_their_hash",),
    "S4": (
        "tests/unit/access/users/test_passwords.py::test_no_two_hashes_are_alike_and_none_shows_the_password",
        "tests/unit/access/users/test_admission.py::test_a_password_is_kept_in_no_user",
        "tests/unit/gateway/server/test_credentials.py::test_what_is_stored_is_not_what_has_to_be_shown",
        "tests/unit/gateway/server/test_credentials.py::test_a_token_is_shown_without_its_hash",
    ),
    "S5": (
        f"{_TRYING}::test_a_revoked_token_opens_nothing_more",
        f"{_TRYING}::test_an_expired_token_opens_nothing_more",
        f"{_TRYING}::test_a_disabled_user_is_let_in_by_no_token",
        f"{_TRYING}::test_what_goes_on_in_a_cluster_ends_with_its_token",
        f"{_HOLES}::test_a_token_among_protocols_is_bounded_told_of_and_revoked_like_any_other",
    ),
    "S6": (
        f"{_DOOR}::test_two_credentials_at_once_are_none",
        f"{_HOLES}::test_a_token_among_protocols_is_bounded_told_of_and_revoked_like_any_other",
    ),
    "S7": (
        f"{_TRYING}::test_a_page_of_another_site_can_do_nothing_with_a_session",
        f"{_TRYING}::test_a_session_is_no_way_into_a_cluster_or_the_api",
        f"{_STEVE}::test_a_sessions_cookie_counts_and_writes_need_the_proof_of_our_page",
        f"{_CSRF}::test_a_page_of_another_origin_changes_nothing_even_with_the_token",
        f"{_CSRF}::test_a_websocket_must_say_where_it_comes_from",
        f"{_CSRF}::test_a_foreign_page_does_nothing_with_what_its_browser_adds",
        f"{_MORE}::test_a_foreign_page_does_nothing_with_a_remembered_password",
    ),
    "S8": (
        f"{_TRYING}::test_identity_headers_do_not_change_the_caller",
        f"{_TRYING}::test_impersonation_without_permission_is_refused",
        f"{_TRYING}::test_groups_are_not_added_to_oneself",
        f"{_TRYING}::test_a_header_named_in_connection_is_not_taken_away",
        f"{_HEADERS}::test_a_forged_identity_does_not_go_on_and_is_told",
        f"{_DOOR}::test_impersonation_needs_permission",
    ),
    "S9": (
        f"{_TRYING}::test_a_path_with_two_readings_has_none",
        f"{_TRYING}::test_another_spelling_of_a_route_is_no_way_around_it",
        f"{_TRYING}::test_a_request_with_two_ends_is_the_last_on_its_connection",
        "tests/unit/gateway/server/test_path_validation.py::test_what_could_be_read_in_two_ways_is_refused",
        f"{_DOOR}::test_requests_whose_end_or_addressee_is_uncertain",
    ),
    "S10": (
        "tests/unit/gateway/proxy/test_redirects.py::test_what_else_of_ours_is_nowhere",
        f"{_LOGIN}::test_a_host_that_is_none_gets_no_answer_with_it_inside",
        f"{_TRYING}::test_another_name_for_us_is_no_origin_of_ours",
    ),
    "S11": (
        f"{_DOOR}::test_errors_say_no_more_than_they_must",
        "tests/integration/gateway/server/test_image_registry.py::test_a_broken_layout_tells_nothing_of_the_machine",
        "tests/unit/access/users/test_passwords.py::test_a_new_password_that_is_refused_is_not_repeated",
    ),
    "S49": (
        "tests/security/test_echo.py::test_what_can_not_be_read_is_not_repeated",
        "tests/security/test_echo.py::test_why_a_request_can_not_be_read_is_said_in_words_of_ours",
        "tests/security/test_echo.py::test_small_doors_repeat_nothing",
        "tests/security/test_echo.py::test_every_application_is_run_by_the_runner_that_repeats_nothing",
    ),
    "S12": (
        f"{_TRYING}::test_every_unknown_cluster_looks_like_one_of_others",
        f"{_TRYING}::test_another_tenants_objects_are_out_of_reach",
        f"{_STEVE}::test_a_tenant_sees_by_name_only_what_the_roles_name",
        f"{_STEVE}::test_a_list_across_namespaces_has_those_that_the_caller_may_list",
        f"{_MORE}::test_lists_and_watches_show_nothing_of_others",
        f"{_MORE}::test_tokens_and_members_are_of_ones_own_cluster",
        "tests/integration/apiserver/watch/test_filtered_list.py::test_a_hidden_object_does_not_exist_for_a_caller_who_may_create",
        "tests/integration/gateway/proxy/test_partial_watch.py::test_a_cluster_that_is_hidden_is_answered_like_one_that_does_not_exist",
        f"{_ROUTES}::test_a_user_without_a_role_sees_nothing_of_any_kind",
        f"{_ROUTES}::test_pages_of_the_api_are_for_discovery_or_need_permission",
        f"{_LOGIN}::test_a_tenant_can_not_see_or_end_tokens_of_others",
    ),
    "S13": (
        f"{_TRYING}::test_a_tenant_grants_nothing_to_themselves",
        f"{_MORE}::test_requests_to_become_another_user_are_refused",
        f"{_MORE}::test_a_management_cluster_takes_no_existing_namespace",
        "tests/unit/apiserver/auth/test_escalation.py::test_more_than_one_holds_is_refused",
        "tests/unit/apiserver/auth/test_escalation.py::test_aggregation_takes_everything",
        "tests/unit/apiserver/auth/test_escalation.py::test_a_binding_to_more_than_its_author_holds_is_refused",
        "tests/unit/access/roles/test_admission.py::test_a_binding_of_a_global_role_with_more_than_the_writer_holds_is_refused",
        "tests/unit/access/users/test_admission.py::test_a_token_for_another_user_or_for_a_group_is_refused",
        "tests/integration/gateway/auth/test_users_api.py::test_who_manages_users_is_no_administrator_by_it",
    ),
    "S48": (
        "tests/unit/access/users/test_admission.py::test_users_with_more_permissions_can_not_be_changed",
        "tests/unit/access/users/test_admission.py::test_who_writes_users_does_not_lock_out_an_administrator",
        "tests/integration/gateway/auth/test_users_api.py::test_a_user_manager_can_not_take_over_a_user_with_more_permissions",
        "tests/integration/gateway/auth/test_users_api.py::test_who_manages_users_is_no_administrator_by_it",
        "tests/unit/access/roles/test_admission.py::test_removing_a_global_role_with_more_than_the_writer_holds_is_refused",
    ),
    "S14": ("tests/security/test_secrets.py::test_a_secret_is_shown_only_to_users_who_may_read_it",),
    "S15": (
        "tests/integration/apiserver/history/test_history.py::test_the_past_is_shown_since_the_right_to_it_was_given",
        "tests/integration/apiserver/history/test_history.py::test_a_namespace_of_the_same_name_was_another_one",
    ),
    "S16": (
        f"{_PEOPLE}::test_a_cluster_is_not_made_with_secrets_that_its_maker_may_not_read",
        f"{_PEOPLE}::test_a_credential_is_for_its_creator_only",
        "tests/integration/machines/runner/test_controller.py::test_a_machine_without_the_clusters_credential_gets_no_process",
    ),
    "S17": (
        f"{_RUNNING}::test_no_user_gets_a_program_run",
        f"{_RUNNING}::test_no_user_gets_a_shell_beside_the_server",
        f"{_RUNNING}::test_who_may_make_jobs_and_pods_gets_none_run_here",
        f"{_PEOPLE}::test_machines_beside_the_server_need_permission_for_that_driver",
    ),
    "S18": (f"{_HOLES}::test_a_clusters_kubeconfig_names_no_file_and_no_program_of_ours",),
    "S19": (f"{_ROUTES}::test_the_api_passes_nothing_on_to_where_a_caller_says",),
    "S20": (
        f"{_PLANS}::test_a_host_has_its_own_plan",
        f"{_PLANS}::test_it_has_nothing_else",
        f"{_PLANS}::test_a_plan_token_authenticates_only_its_machine",
        f"{_PLANS}::test_it_is_no_user_of_the_gateway",
        f"{_PLANS}::test_it_opens_no_tunnel_and_registers_no_host",
    ),
    "S47": (
        f"{_PLANS}::test_it_writes_its_answers_and_nothing_else_of_its_secret",
        "tests/unit/provisioning/plans/test_host_permissions.py::test_a_host_writes_its_answers_and_nothing_else_of_its_secret",
        "tests/unit/provisioning/plans/test_host_permissions.py::test_a_webhook_is_asked_only_about_what_hosts_write",
        "tests/unit/provisioning/plans/test_host_permissions.py::test_a_secret_that_is_immutable_is_made_again_with_all_that_the_server_knows",
        "tests/unit/provisioning/plans/test_host_permissions.py::test_a_secret_that_is_full_gets_room_for_a_plan",
        "tests/unit/provisioning/planner/test_controller.py::test_one_bad_secret_does_not_stop_the_others",
    ),
    "S21": (
        f"{_TRYING}::test_a_nodes_token_opens_no_tunnel",
        f"{_JOINING}::test_the_id_of_a_host_is_not_enough_to_register_as_it",
        "tests/e2e/access/test_registering.py::test_one_host_is_not_another",
        "tests/e2e/access/test_registering.py::test_a_host_of_one_cluster_is_none_of_another",
    ),
    "S22": (
        f"{_JOINING}::test_a_script_is_for_one_host_and_ends_with_its_first_act",
        f"{_JOINING}::test_a_script_that_was_not_used_in_time_lets_no_host_in",
        "tests/unit/provisioning/bootstrap/test_bootstraptoken.py::test_it_opens_nothing_but_what_it_was_made_for",
        "tests/e2e/access/test_registering.py::test_the_token_of_a_machine_that_is_gone_is_dead",
    ),
    "S23": (
        "tests/unit/lab/distro/cluster/test_node_rights.py::test_a_node_reads_what_its_pods_need_and_no_more",
        "tests/unit/lab/distro/cluster/test_node_rights.py::test_a_node_touches_no_other",
        "tests/unit/lab/distro/cluster/test_node_rights.py::test_a_node_asks_for_no_rights",
    ),
    "S24": (
        "tests/integration/lab/distro/cluster/test_supervisor.py::test_a_node_gets_its_certificate_as_long_as_it_is_the_same_host",
        "tests/unit/lab/distro/pki/test_authorities.py::test_a_node_gets_a_certificate_for_its_own_name_whatever_it_asks_for",
    ),
    "S50": (
        "tests/integration/lab/distro/cluster/test_supervisor.py::test_a_worker_gets_no_certificate_for_the_api_a_service_or_another_node",
    ),
    "S25": (
        "tests/unit/agent/plans/test_files.py::test_nothing_outside_of_the_root_is_touched",
        "tests/integration/agent/images/test_images.py::test_no_image_reaches_out_of_its_directory",
        "tests/integration/agent/images/test_images.py::test_links_are_kept_and_followed_only_inside",
    ),
    "S54": (
        "tests/integration/agent/install/test_script.py::test_an_installation_with_directories_of_its_own_stays_below_the_root",
        "tests/integration/agent/install/test_script.py::test_a_place_outside_of_a_host_is_refused",
        "tests/integration/agent/install/test_script.py::test_a_link_of_the_host_itself_is_not_followed_out_of_it",
        "tests/integration/agent/install/test_script.py::test_the_uninstaller_touches_nothing_outside_of_a_host",
        "tests/integration/agent/install/test_script.py::test_no_variable_of_a_cluster_moves_a_host",
        "tests/unit/provisioning/admission/test_provider_objects.py::test_no_variable_says_where_a_host_lives",
        "tests/unit/agent/test_config.py::test_a_host_in_a_directory_keeps_its_own_files_there",
        "tests/unit/agent/test_config.py::test_a_link_does_not_lead_the_agent_out_of_its_root",
        "tests/unit/lab/distro/config/test_settings.py::test_a_host_in_a_directory_writes_below_it_whatever_it_is_told",
        "tests/unit/provisioning/test_host_layout.py::test_a_path_that_is_below_the_root_already_stays",
    ),
    "S26": (
        f"{_TRYING}::test_a_registration_token_authenticates_no_user",
        f"{_TRYING}::test_an_agent_is_no_other_clusters_agent",
        f"{_TRYING}::test_an_endpoint_is_not_swapped_under_a_known_cluster",
        f"{_TUNNELS}::test_another_cluster_does_not_take_the_place_of_a_known_one_nor_learn_its_token",
        f"{_TUNNELS}::test_a_session_ends_with_its_token_but_not_within_grace",
    ),
    "S27": (
        "tests/integration/tunnel/clusteragent/test_agent.py::test_the_wrong_ca_never_sees_the_token",
        "tests/integration/tunnel/clusteragent/test_agent.py::test_the_api_is_dialled_and_nothing_else",
        "tests/integration/tunnel/clusteragent/test_server_trust.py::test_another_checksum_is_refused_before_anything_else_is_asked",
    ),
    "S28": (
        f"{_TRYING}::test_what_comes_from_a_cluster_is_no_page_of_ours",
        f"{_HEADERS}::test_a_cluster_can_not_speak_to_a_browser_as_us",
        f"{_PROXY}::test_a_cluster_can_not_redirect_to_another_one",
    ),
    "S29": (
        f"{_PROXY}::test_a_caller_is_themselves_in_the_cluster",
        "tests/integration/gateway/proxy/test_impersonation.py::test_the_role_lets_an_account_be_one_user_in_their_groups",
    ),
    "S51": (
        "tests/unit/access/health/test_cluster_resources.py::test_a_node_is_kept_within_its_bounds_and_says_that_it_was_cut",
        "tests/unit/access/health/test_cluster_resources.py::test_sums_of_what_no_machine_has_are_none",
        "tests/unit/access/health/test_cluster_resources.py::test_many_systems_are_not_all_told",
        "tests/unit/capi/clustercache/test_cache.py::test_a_node_of_a_hostile_cluster_is_kept_within_bounds",
        "tests/unit/kube/test_bounding.py::test_nothing_is_larger_than_its_bounds",
        "tests/unit/runtime/test_informer.py::test_a_list_that_never_ends_is_given_up",
        "tests/unit/provisioning/nodes/test_unmanaged.py::test_a_cluster_takes_only_so_many_hosts",
    ),
    "S30": (
        f"{_JOBS}::test_no_other_job_is",
        f"{_JOBS}::test_what_is_done_is_what_the_machine_says",
        f"{_JOBS}::test_the_server_keeps_its_environment_to_itself",
        "tests/integration/machines/runner/test_process.py::test_it_reaches_no_file_but_its_own",
        "tests/integration/machines/runner/test_process.py::test_root_gives_each_process_a_user_of_its_own",
    ),
    "S31": (
        "tests/unit/machines/nodedrivers/test_driver_downloads.py::test_another_checksum_leaves_nothing",
        f"{_PEOPLE}::test_a_role_for_drivers_alone_does_not_say_what_is_downloaded",
        f"{_HOLES}::test_a_download_by_https_is_not_sent_elsewhere",
    ),
    "S32": (
        "tests/security/test_tls.py::test_a_listener_speaks_tls_1_2_and_newer_with_forward_secrecy",
        f"{_DISK}::test_old_tls_is_refused_on_the_port_itself",
        f"{_SOURCES}::test_every_context_is_made_for_tls_1_2_and_newer",
        f"{_SOURCES}::test_every_place_without_tls_verification_is_listed",
    ),
    "S33": (
        f"{_DISK}::test_what_a_server_writes_is_its_owners_whatever_the_umask",
        "tests/integration/apiserver/keys/test_pki.py::test_everything_is_private_and_there_after_the_first_start",
        "tests/integration/apiserver/keys/test_shared_keys.py::test_a_secret_that_others_may_read_is_refused",
    ),
    "S34": (f"{_DISK}::test_secrets_are_not_in_the_database_as_they_are",),
    "S35": (
        "tests/unit/apiserver/keys/test_key_agreement.py::test_what_is_sealed_opens_with_its_token_and_shows_nothing",
        "tests/unit/apiserver/keys/test_key_agreement.py::test_a_short_token_is_refused",
    ),
    "S36": (
        f"{_TRYING}::test_no_secret_is_in_any_log",
        "tests/e2e/access/test_agent.py::test_a_token_does_not_stay_on_the_command_line",
        "tests/unit/gateway/server/test_audit_log.py::test_secrets_are_hidden_and_the_rest_stays",
        f"{_JOBS}::test_output_is_kept_in_lines_without_secrets",
        "tests/security/test_lookout.py::test_a_secret_in_a_log_is_found_and_not_repeated",
    ),
    "S37": (
        f"{_HOLES}::test_a_line_in_the_log_is_ours_alone",
        "tests/unit/gateway/server/test_audit_log.py::test_clients_can_not_forge_a_line",
        "tests/unit/gateway/registration/test_node_progress.py::test_a_line_is_one_line_without_what_a_terminal_would_obey",
    ),
    "S38": (
        f"{_SOURCES}::test_nothing_that_others_send_is_run",
        "tests/unit/machines/test_machine_state.py::test_only_plain_files_of_the_machine_itself_are_taken",
        "tests/unit/machines/test_machine_state.py::test_a_bomb_does_not_go_off",
    ),
    "S39": (
        "tests/integration/apiserver/backup/test_files.py::test_only_its_owner_may_read_it_whatever_the_umask",
        "tests/integration/apiserver/backup/test_format.py::test_the_header_is_read_without_the_passphrase_and_nothing_else_is",
        "tests/integration/apiserver/backup/test_format.py::test_a_changed_byte_is_found_wherever_it_is",
        "tests/integration/apiserver/backup/test_format.py::test_a_forged_file_is_found_though_its_checksum_is_right",
        "tests/integration/apiserver/backup/test_format.py::test_a_header_can_t_ask_for_all_memory",
        "tests/e2e/operating/test_support_bundle.py::test_a_bundle_tells_how_it_is_and_no_secret_with_the_server_up_or_down",
    ),
    "S40": (
        "tests/integration/apiserver/keys/test_rotation.py::test_every_secret_is_sealed_with_the_new_key_and_stays_readable",
        "tests/integration/apiserver/keys/test_rotation.py::test_certificates_of_the_old_ca_are_good_until_it_is_dropped",
        "tests/integration/apiserver/keys/test_rotation.py::test_tokens_of_the_old_key_are_good_until_it_is_dropped",
    ),
    "S41": (
        f"{_BODIES}::test_each_user_has_so_many_bytes_and_all_of_them_together",
        f"{_BODIES}::test_who_has_too_many_bytes_under_way_is_told_to_try_again",
        f"{_BODIES}::test_bodies_that_wait_for_a_webhook_are_counted",
        f"{_BODIES}::test_however_a_request_ends_its_bytes_are_given_back",
    ),
    "S42": (
        f"{_REFERENCES}::test_a_user_s_own_object_is_used_and_an_administrator_uses_all",
        f"{_REFERENCES}::test_another_object_under_the_same_name_is_refused_until_it_is_accepted",
        f"{_REFERENCES}::test_a_right_that_an_author_loses_is_the_cluster_s_no_more",
        f"{_REFERENCES}::test_roles_in_a_cluster_give_no_right_to_what_it_could_name",
        f"{_USED}::test_a_config_belongs_to_its_creator",
        f"{_USED}::test_a_job_gets_no_credential_but_the_one_that_its_cluster_was_given",
        f"{_ADDRESSES}::test_a_registry_s_password_is_for_the_registry_that_a_user_named_who_may_read_it",
    ),
    "S43": (
        f"{_REFERENCES}::test_every_field_that_names_a_secret_or_a_config_is_marked",
        f"{_REFERENCES}::test_plans_are_made_of_what_is_marked",
        f"{_USED}::test_a_plan_shows_no_secret_that_the_author_of_its_cluster_may_not_read",
    ),
    "S44": (
        f"{_REFERENCES}::test_an_object_of_another_user_is_as_one_that_is_not_there",
        f"{_REFERENCES}::test_a_new_object_of_another_user_under_the_same_name_is_as_one_that_is_not_there",
        "tests/unit/machines/test_admission.py::test_the_owner_of_a_config_is_shown_to_users_who_may_read_it",
        "tests/unit/machines/test_admission.py::test_clusters_that_name_a_config_are_shown_to_users_who_may_read_them",
        "tests/unit/provisioning/admission/test_provider_objects.py::test_a_snapshot_that_is_to_be_restored_has_to_be_there_and_the_cluster_s_own",
    ),
    "S45": (
        "tests/unit/machines/nodedrivers/test_secrecy.py::test_the_secret_fields_of_a_driver_are_the_reviewed_ones",
        f"{_SEALING}::test_no_role_of_a_cluster_reads_a_key_in_a_config_a_template_or_a_machine",
        f"{_SEALING}::test_nothing_in_the_store_but_secrets_has_the_value",
        f"{_SEALING}::test_the_next_apply_of_the_same_yaml_changes_nothing_on_either_side",
        f"{_SEALING}::test_a_copied_marker_is_refused_and_named_by_its_field",
        f"{_SEALING}::test_whether_a_marker_names_anything_is_not_told",
        "tests/integration/machines/secretfields/test_history.py::test_the_past_shows_values_only_to_users_who_may_read_secrets",
        "tests/unit/machines/machineprovision/test_job_arguments.py"
        "::test_secret_fields_are_in_the_environment_and_in_files_and_in_no_argument",
        "tests/unit/machines/machineprovision/test_job_arguments.py::test_no_other_argument_of_a_pod_names_a_variable",
        "tests/integration/machines/runner/test_controller.py::test_only_the_program_gets_the_values_of_sealed_fields",
        "tests/scenarios/test_sealed_fields.py::test_moving_what_an_older_version_stored_replaces_no_machine",
    ),
    "S55": (
        f"{_ADDRESSES}::test_only_a_user_who_may_read_the_credential_changes_where_it_goes",
        f"{_ADDRESSES}::test_no_client_writes_the_author_of_an_address",
        f"{_ADDRESSES}::test_a_pool_is_given_no_config_whose_address_another_user_wrote",
        f"{_ADDRESSES}::test_an_address_that_comes_later_than_its_name_is_refused_when_it_is_used",
        f"{_ADDRESSES}::test_another_credential_is_not_sent_where_its_holder_did_not_say",
        f"{_ADDRESSES}::test_no_machine_is_made_with_the_address_of_a_user_who_lost_the_right",
        f"{_ADDRESSES}::test_a_machine_that_goes_shows_a_new_credential_only_to_an_address_of_its_readers",
        f"{_ADDRESSES}::test_a_config_from_before_there_were_records_stays_in_use_and_is_no_way_in",
        "tests/unit/machines/nodedrivers/test_driver_addresses.py::test_the_addresses_of_a_driver_are_the_reviewed_ones",
        "tests/unit/machines/test_admission.py::test_what_sends_a_credential_to_an_address_is_made_by_users_who_may_read_it",
        "tests/scenarios/test_addresses.py::test_a_pool_goes_on_when_the_holder_of_its_credential_accepts_the_address",
    ),
    "S56": (
        f"{_ADDRESSES}::test_a_sealed_value_goes_to_no_other_address_unless_it_is_written_again",
        f"{_SEALING}::test_another_address_takes_the_value_again_also_when_webhooks_have_the_write_looked_at_twice",
    ),
    "S46": (
        f"{_OUTBOUND}::test_nothing_of_a_tenants_leads_to_the_server_itself",
        f"{_OUTBOUND}::test_nothing_of_a_tenants_leads_to_a_metadata_service",
        f"{_OUTBOUND}::test_what_the_setting_allows_is_connected_to",
        f"{_OUTBOUND}::test_a_tenant_does_not_learn_which_ports_are_open",
        f"{_OUTBOUND}::test_another_web_server_is_not_told_apart",
        f"{_OUTBOUND}::test_boto3_connects_to_the_address_that_was_checked",
        f"{_OUTBOUND}::test_a_tenant_does_not_borrow_the_role_of_the_servers_machine",
        f"{_OUTBOUND}::test_a_foreign_driver_does_not_run_with_a_refused_host",
        f"{_OUTBOUND}::test_a_job_is_handed_the_policy_and_no_credential_changes_it",
        f"{_OUTBOUND}::test_a_jobs_log_tells_a_tenant_one_of_two_sentences_and_the_server_the_rest",
        f"{_OUTBOUND}::test_a_webhook_is_on_this_machine_but_at_no_metadata_service",
        f"{_OUTBOUND}::test_no_redirect_of_a_download_leads_to_a_metadata_service",
        f"{_OUTBOUND}::test_every_place_that_connects_is_listed_with_the_author_of_the_address",
        "tests/integration/kube/network/test_outbound.py::test_no_form_of_ipv6_hides_an_address_that_is_refused",
        "tests/integration/kube/network/test_outbound.py::test_a_name_is_looked_up_once_and_connected_to_as_it_was_checked",
        "tests/integration/gateway/proxy/test_machine_access.py::test_a_shell_leads_to_no_address_that_the_policy_refuses",
    ),
    "S52": (
        "tests/unit/gateway/registration/test_node_registration_interruptions.py::test_whichever_write_the_server_dies_after_the_host_is_let_in",
        "tests/unit/provisioning/nodes/test_host_registration.py::test_a_host_that_did_not_hear_gets_the_same_answer_until_its_token_expires",
        "tests/unit/provisioning/nodes/test_host_registration.py::test_a_host_that_has_acted_comes_again_only_with_what_it_got",
        "tests/unit/provisioning/nodes/test_unmanaged.py::test_a_host_that_has_used_its_token_is_let_in_no_more_without_it",
        "tests/unit/provisioning/nodes/test_awaitedhost.py::test_the_token_of_a_script_is_marked_when_its_host_acts_and_not_before",
    ),
    "S57": (
        "tests/unit/gateway/peers/test_directory.py::test_anything_else_is_refused",
        "tests/unit/gateway/peers/test_directory.py::test_a_token_is_valid_from_one_server_to_another_only",
        "tests/integration/gateway/peers/test_peering.py::test_a_caller_without_the_shared_keys_is_refused",
        "tests/integration/gateway/peers/test_peering.py::test_another_certificate_than_the_named_one_gets_no_token",
        "tests/integration/tunnel/test_peers.py::test_an_agent_can_neither_announce_clients_nor_open_streams",
        "tests/integration/tunnel/test_peers.py::test_a_stream_of_another_server_goes_no_further",
        "tests/integration/tunnel/test_peers.py::test_only_streams_for_a_client_are_relayed",
        "tests/e2e/access/test_peers.py::test_no_other_credential_is_that_of_a_server",
    ),
    "S53": (
        f"{_HANDOVER}::test_a_client_certificate_of_a_dropped_ca_opens_nothing_by_way_of_an_intermediate",
        f"{_HANDOVER}::test_a_cross_certificate_vouches_for_servers_only",
        f"{_HANDOVER}::test_the_certificate_shows_a_handover_for_a_year_and_no_longer",
        f"{_HANDOVER}::test_a_ca_that_leaves_nothing_ends_what_others_have_left",
        f"{_HANDOVER}::test_a_handover_can_be_ended_later",
        f"{_HANDOVER}::test_a_host_shows_its_token_to_no_server_that_its_ca_does_not_vouch_for",
        f"{_HANDOVER}::test_a_cluster_agent_does_not_trust_a_server_that_only_repeats_its_old_ca",
    ),
}
