"""Index of the fault matrix (``docs/spec/reliability.md`` 2.3): row → the tests that show it, or why it has none.

A test is ``file::function`` or ``file::function[text``, which means the cases whose id holds ``text``.
``test_matrix.py`` compares this index with the page and with the tests; ``scripts/reliability`` runs it.
"""

from __future__ import annotations

_BAD = "tests/edge/test_bad_input.py::"
_REFUSED = _BAD + "test_bad_input_is_refused_before_an_upstream_request"
_BEFORE = "tests/faults/test_before_the_first_byte.py::"
_FAILS = _BEFORE + "test_a_failure_before_the_answer_has_its_status_and_number_of_requests"
_NO_CONTENT = _BEFORE + "test_a_stream_without_content_gets_an_error_status"
_BACKEND = "tests/backend/test_failures.py::"
_CODE = _BACKEND + "test_a_failure_before_the_answer_has_our_name"
_ODD = _BACKEND + "test_an_odd_but_whole_answer_is_read_exactly"
_BROKEN = _BACKEND + "test_a_broken_stream_gives_its_text_and_then_the_error"
_STREAM = "tests/faults/test_in_the_stream.py::"
_EE = _STREAM + "test_a_broken_stream_ends_with_an_error_event_and_no_finish"
_FORMS = _STREAM + "test_unusual_forms_of_a_correct_stream_are_read"
_CUT = _STREAM + "test_the_answer_ends_before_the_stop_string"
_CONNECTION = "tests/edge/test_connection.py::"
_TIMEOUTS = _CONNECTION + "test_a_connection_is_closed_at_its_timeouts"
_LIMITS = "tests/edge/test_limits.py::"
_KEYS = "tests/edge/test_keys_http.py::"
_HOST = "tests/edge/test_host_header.py::"
_FAILOVER = "tests/policy/test_failover.py::"
_SERVERS = "tests/journeys/test_both_servers.py::"
_SHUTDOWN = "tests/journeys/test_shutdown.py::"
_RELOAD = "tests/journeys/test_reload.py::"
_SIGNALS = "tests/journeys/test_worker_signals.py::"
_YAML = "tests/config/test_config_yaml.py::"
_ROWS = "tests/reliability/test_rows.py::"
_FIGURES = "tests/reliability/test_figures.py::"
_METRICS = "tests/telemetry/test_metrics.py::"


def _cases(function: str, *texts: str) -> tuple[str, ...]:
    """The cases of one function whose ids hold one of ``texts``."""
    return tuple(f"{function}[{text}" for text in texts)


def _both(*modes: str) -> tuple[str, ...]:
    """The cases of ``modes`` over HTTP through the gateway, and in the backend."""
    return (*_cases(_FAILS, *modes), *_cases(_CODE, *modes))


TESTS: dict[str, tuple[str, ...]] = {
    # A. Bad input
    "A01": _cases(_REFUSED, "A01 "),
    "A02": _cases(_REFUSED, "A02 "),
    "A03": (*_cases(_REFUSED, "A03 "), _BAD + "test_a03_an_empty_body_is_invalid_json"),
    "A04": (
        *_cases(_REFUSED, "A04 "),
        _BAD + "test_a04_deep_json_is_refused_fast",
        _BAD + "test_a04_63_levels_below_the_body_are_accepted",
    ),
    "A05": _cases(_REFUSED, "A05 "),
    "A06": _cases(_REFUSED, "A06 "),
    "A07": (_BAD + "test_a07_only_the_last_of_a_repeated_key_is_forwarded",),
    "A08": _cases(_REFUSED, "A08 "),
    "A09": (*_cases(_REFUSED, "A09 "), _BAD + "test_a09_nul_is_forwarded"),
    "A10": (*_cases(_REFUSED, "A10 "), _BAD + "test_a10_a_charset_of_utf8_is_accepted"),
    "A11": (*_cases(_REFUSED, "A11 "), _BAD + "test_a11_content_encoding_identity_is_accepted"),
    "A12": _cases(_BAD + "test_a12_a13_a_body_over_the_limit_closes_the_connection", "A12 "),
    "A13": (
        *_cases(_BAD + "test_a12_a13_a_body_over_the_limit_closes_the_connection", "A13 "),
        _BAD + "test_a13_a_body_of_exactly_the_limit_is_accepted",
    ),
    "A14": (*_cases(_REFUSED, "A14 "), _BAD + "test_a14_unknown_models_add_no_series_and_no_line_breaks"),
    "A15": _cases(_REFUSED, "A15 "),
    "A16": (*_cases(_REFUSED, "A16 "), _BAD + "test_a16_the_role_is_named_and_escaped"),
    "A17": _cases(_REFUSED, "A17 "),
    "A18": (*_cases(_REFUSED, "A18 "), _BAD + "test_a18_an_unknown_field_is_forwarded_by_the_default_policy"),
    "A19": (*_cases(_REFUSED, "A19 "), _BAD + "test_a19_text_may_contain_a_url"),
    "A20": (
        _BAD + "test_a20_a_wrong_path_or_method_is_a_json_error",
        _BAD + "test_a20_head_has_no_body",
        _BAD + "test_a20_a_websocket_upgrade_is_refused",
    ),
    "A21": (*_cases(_REFUSED, "A21 "), _BAD + "test_counting_a_long_prompt_does_not_block_other_calls"),
    "A22": (_BAD + "test_a22_content_is_delivered_byte_for_byte",),
    # B. The upstream fails before the first byte
    "B01": (*_cases(_FAILS, "refused"), _FAILOVER + "test_a_retryable_error_is_retried_at_another_target"),
    "B02": (*_cases(_FAILS, "blackhole"), _BACKEND + "test_a_silent_connect_times_out"),
    "B03": (*_cases(_FAILS, "nowhere"), _BACKEND + "test_an_unknown_host_is_a_dns_error"),
    "B04": (
        *_cases(_FAILS, "hang-headers"),
        *_cases(_BEFORE + "test_a_disconnect_before_the_first_byte_closes_the_upstream", "patient/hang-headers"),
    ),
    "B05": _both("early-close", "reset"),
    "B06": _both("garbage", "bad-status-line", "partial-headers"),
    "B07": (*_cases(_FAILS, "dribble-headers"), "tests/backend/test_http.py::test_dribbled_headers_can_be_left"),
    "B08": (*_both("huge-headers", "many-headers", "header-injection"), *_cases(_CODE, "obs-fold")),
    "B09": (
        *_both("cl-and-te"),
        *_cases(_ODD, "cl-too-short"),
        _BACKEND + "test_a_smuggled_reply_never_reaches_the_next_call",
        _BEFORE + "test_bytes_after_an_answer_never_reach_the_next_client",
    ),
    "B10": _both("redirect", "redirect-307"),
    "B11": (*_both("html-502"), *_cases(_BACKEND + "test_nothing_private_of_the_upstream_is_passed_on", "html-502")),
    "B12": (
        *_both("500", "503", "529", "418"),
        _BEFORE + "test_a_busy_upstream_gives_a_retry_after",
        _BACKEND + "test_an_unknown_4xx_is_not_retried",
    ),
    "B13": (
        _FAILOVER + "test_a_single_target_is_retried_after_its_retry_after",
        _FAILOVER + "test_a_long_retry_after_is_returned_to_the_client",
    ),
    "B14": (
        *_both("429"),
        _BACKEND + "test_retry_after_is_understood_and_bounded",
        _FAILOVER + "test_a_call_does_not_retry_a_rate_limited_target",
    ),
    "B15": (*_both("429-quota"), *_cases(_CODE, "402")),
    "B16": (
        *_both("401"),
        *_cases(_CODE, "403"),
        *_cases(_BACKEND + "test_nothing_private_of_the_upstream_is_passed_on", "401", "403"),
    ),
    "B17": _both("400-context", "400-filter", "400"),
    "B18": _both("404"),
    "B19": _both("200-html", "200-empty", "200-array", "200-no-choices", "200-truncated", "204"),
    "B20": (*_both("200-error-body"), *_cases(_NO_CONTENT, "flaky-first-chunk")),
    "B21": (
        _BEFORE + "test_an_answer_with_the_wrong_content_type_is_read_by_its_content",
        *_cases(_ODD, "wrong-content-type", "wrong-mode"),
    ),
    "B22": (*_both("gzip"), *_cases(_CODE, "gzip-corrupt")),
    "B23": (*_both("huge-json"), *_cases(_CODE, "deep-json", "odd-numbers")),
    "B24": (_BEFORE + "test_a_second_attempt_hides_the_first_failure",),
    "B25": (
        "tests/faults/test_targets.py::test_a_target_that_recovers_is_used_again",
        "tests/policy/test_circuit_breaker.py::test_an_open_breaker_lets_one_probe_through_after_its_time",
    ),
    "B26": (*_cases(_FORMS, "interim-flood", "http10"), *_cases(_ODD, "interim-flood", "http10")),
    # C. The stream fails after the status
    "C01": (*_cases(_EE, "drop-midstream"), *_cases(_BROKEN, "drop-midstream")),
    "C02": (*_cases(_EE, "reset-midstream"), *_cases(_BROKEN, "reset-midstream")),
    "C03": (_STREAM + "test_a_stream_is_not_retried_after_its_first_byte", *_cases(_BROKEN, "flaky-midstream")),
    "C04": (*_cases(_FORMS, "no-done"), *_cases(_ODD, "no-done")),
    "C05": (*_cases(_EE, "no-finish"), *_cases(_BROKEN, "no-finish")),
    "C06": _cases(_NO_CONTENT, "done-only", "empty-stream"),
    "C07": (
        *_cases(_FORMS, "data-after-done"),
        _STREAM + "test_an_upstream_that_stays_open_after_done_does_not_delay_the_client",
        _BACKEND + "test_data_after_done_never_reaches_the_next_call",
    ),
    "C08": _cases(_EE, "error-midstream", "error-event"),
    "C09": _cases(_EE, "malformed-sse"),
    "C10": _cases(_FORMS, "comments", "unknown-field"),
    "C11": (
        *_cases(
            _FORMS,
            "crlf-sse",
            "cr-sse",
            "no-space",
            "multi-line-data",
            "bom",
            "one-byte-writes",
            "one-write",
            "no-final-blank-line",
        ),
        "tests/stream/test_sse.py::test_every_slicing_gives_the_same_events",
    ),
    "C12": _cases(_FORMS, "split-utf8"),
    "C13": (
        _STREAM + "test_surrogates_in_two_pieces_are_joined",
        _BACKEND + "test_a_surrogate_pair_is_joined_and_a_lone_one_replaced",
    ),
    "C14": _cases(_EE, "invalid-utf8"),
    "C15": _cases(_CUT, "eos"),
    "C16": (
        *_cases(_CUT, "split-stop"),
        "tests/metatemplate/answers/stops/test_stop_cutter.py::test_every_slicing_gives_the_same_text_and_one_finish",
    ),
    "C17": (_STREAM + "test_text_that_resembles_a_stop_string_is_delivered",),
    "C18": _cases(_CUT, "stop-first"),
    "C19": (
        *_cases(_CUT, "stop-then-endless"),
        _STREAM + "test_an_engine_that_continues_after_a_stop_is_closed_at_once",
    ),
    "C20": _cases(_CUT, "forged-turn"),
    "C21": (
        "tests/policy/test_split_calls.py::test_every_choice_ends_at_its_own_stop",
        "tests/metatemplate/answers/stops/test_stop_cutter.py::test_interleaved_choices_do_not_touch_each_other",
    ),
    "C22": (*_cases(_FORMS, "pause-resume"), *_cases(_ODD, "slow-ttfb", "pause-resume")),
    "C23": _cases(_EE, "stall-midstream"),
    "C24": _cases(_NO_CONTENT, "keepalive-only", "empty-deltas"),
    "C25": (
        _ROWS + "test_c25_an_endless_stream_ends_at_the_deadline_with_an_error_event",
        "tests/policy/test_timeouts.py::test_an_answer_ends_at_its_timeouts[the total ends an answer that goes on",
        *_cases(
            "tests/journeys/test_memory.py::test_an_ended_call_keeps_no_part_of_its_request_in_memory",
            "too long a stream",
        ),
    ),
    "C26": (
        *_cases(_BROKEN, "huge-line"),
        "tests/stream/test_sse.py::test_a_line_without_end_is_refused_before_it_fills_memory",
        "tests/stream/test_sse.py::test_an_event_of_one_mebibyte_passes_byte_by_byte",
    ),
    "C27": (
        _CONNECTION + "test_a_slow_client_applies_back_pressure",
        _SERVERS + "test_a_slow_reading_client_is_not_disconnected",
    ),
    "C28": (
        _FIGURES + "test_t2_the_upstream_sees_every_client_that_leaves",
        _BEFORE + "test_a_disconnect_before_the_first_byte_closes_the_upstream",
        _STREAM + "test_a_disconnect_during_a_stream_closes_the_upstream",
        _STREAM + "test_the_connection_pool_serves_after_100_disconnects",
        _METRICS + "test_a_client_that_leaves_is_told_by_its_phase",
    ),
    "C29": (
        _SERVERS + "test_a_client_that_reads_nothing_is_disconnected_after_the_idle_timeout",
        _CONNECTION + "test_a_client_that_reads_nothing_is_disconnected_at_the_write_timeout",
    ),
    "C30": (
        *_cases(_FORMS, "dup-finish"),
        *_cases(_ODD, "usage-cumulative", "usage-bad"),
        "tests/backend/test_openai_events.py::test_running_totals_count_once_and_nonsense_not_at_all",
    ),
    "C31": (
        _STREAM + "test_a_choice_that_was_not_requested_is_skipped",
        "tests/backend/test_openai_events.py::test_a_choice_that_was_not_requested_is_skipped_with_one_notice",
        "tests/backend/test_openai_events.py::test_tool_calls_keep_their_fragments_and_index",
        "tests/backend/test_openai_events.py::test_a_chunk_with_null_choices_is_skipped",
        "tests/backend/test_openai_events.py::test_reasoning_goes_beside_the_text",
    ),
    # D. Overload
    "D01": (
        _LIMITS + "test_calls_beyond_a_models_slots_wait_and_then_are_refused",
        "tests/policy/test_call_queue.py::test_free_slots_go_to_the_keys_in_turn",
    ),
    "D02": (
        _METRICS + "test_running_and_refused_calls_name_their_model",
        _FIGURES + "test_t5_calls_beyond_the_capacity_are_refused_and_the_others_answered",
    ),
    "D03": (
        _LIMITS + "test_a_key_beyond_its_rate_gets_429_with_the_numbers",
        _LIMITS + "test_a_key_has_a_limit_of_concurrent_calls",
    ),
    "D04": (_LIMITS + "test_a_call_that_waits_too_long_is_refused",),
    "D05": (_LIMITS + "test_a_client_that_leaves_the_queue_frees_its_place",),
    "D06": (
        _FIGURES + "test_t3_retries_add_at_most_a_fifth_to_the_load_of_a_failing_target",
        "tests/policy/test_retry_budget.py::test_retries_amplify_the_load_by_at_most_a_fifth",
        "tests/calls/test_fallback.py::test_the_retries_at_all_models_use_the_budget_of_the_requested_model",
    ),
    "D07": ("tests/faults/test_targets.py::test_a_rate_limited_target_gets_no_more_calls",),
    "D08": (
        *_cases(_TIMEOUTS, "half a head", "nothing", "nothing more"),
        _CONNECTION + "test_idle_connections_do_not_block_new_ones",
        "tests/edge/test_connection_limits.py::test_tls_handshakes_that_do_not_end_count_as_connections",
    ),
    "D09": _cases(_TIMEOUTS, "half a body", "half of an unread body"),
    "D10": (_ROWS + "test_d10_hundreds_of_connections_at_once_are_all_served",),
    "D11": ("tests/journeys/test_worker_deaths.py::test_a_worker_that_hangs_is_killed_and_replaced",),
    # E. Lifecycle
    "E01": (
        _FIGURES + "test_t6_no_stream_is_cut_that_ends_within_the_drain_time",
        _RELOAD + "test_sigterm_finishes_a_stream_and_exits_with_0",
    ),
    "E02": (
        _SHUTDOWN + "test_calls_that_outlast_the_drain_get_an_error",
        _CONNECTION + "test_requests_that_outlast_the_drain_get_server_draining",
    ),
    "E03": (
        _SHUTDOWN + "test_a_second_signal_aborts_running_calls",
        _SIGNALS + "test_the_second_signal_stops_all_workers_at_once",
    ),
    "E04": (_SHUTDOWN + "test_a_call_that_waits_for_a_place_is_refused_at_once",),
    "E05": (_SHUTDOWN + "test_a_drain_makes_readiness_fail_and_closes_idle_connections",),
    "E06": (
        _RELOAD + "test_sighup_loads_an_edit",
        _RELOAD + "test_a_running_stream_keeps_the_stack_it_began_with",
    ),
    "E07": (
        _RELOAD + "test_a_broken_edit_keeps_the_old_configuration",
        _RELOAD + "test_every_problem_of_a_broken_edit_is_logged_at_once",
    ),
    "E08": (
        "tests/config/test_load.py::test_half_of_a_template_is_never_taken_for_the_whole",
        "tests/config/test_watch.py::test_a_file_that_is_still_growing_is_not_reported",
    ),
    "E09": (
        _RELOAD + "test_a_broken_configuration_does_not_start",
        _RELOAD + "test_a_busy_port_is_one_line_and_exit_code_3",
    ),
    "E10": (
        "tests/journeys/test_worker_deaths.py::test_a_killed_worker_is_replaced_while_the_other_serves",
        "tests/journeys/test_worker_deaths.py::test_counters_of_a_dead_worker_are_kept",
    ),
    "E11": (
        _ROWS + "test_e11_deadlines_do_not_read_the_wall_clock",
        "tests/policy/test_timeouts.py::test_an_answer_ends_at_its_timeouts",
    ),
    "E12": (
        _FAILOVER + "test_a_stale_connection_is_retried_at_once_and_counted",
        "tests/backend/test_http.py::test_a_request_is_sent_once_and_an_immediate_close_is_called_stale",
    ),
    # F. Security and abuse
    "F01": (
        _KEYS + "test_every_wrong_key_gets_the_same_answer",
        _KEYS + "test_the_bearer_of_an_expired_key_reads_that_it_has_expired",
        _KEYS + "test_a_key_in_the_query_is_refused",
    ),
    "F02": (
        _KEYS + "test_a_model_the_key_may_not_use_is_not_found",
        _KEYS + "test_a_path_does_not_reveal_which_models_exist",
    ),
    "F03": ("tests/policy/test_keys.py::test_a_key_is_found_by_its_digest",),
    "F04": (
        "tests/config/test_load.py::test_an_open_address_from_the_environment_needs_keys_too",
        "tests/journeys/test_open_listener.py::test_a_reload_is_checked_against_the_bound_address",
    ),
    "F05": (
        _HOST + "test_no_host_is_refused",
        _HOST + "test_two_hosts_are_refused",
        _HOST + "test_a_gateway_on_loopback_accepts_loopback_hosts",
    ),
    "F06": (
        _BAD + "test_invalid_http_gets_an_error_object_and_a_closed_connection",
        "tests/edge/test_framing.py::test_accepted_requests_are_read_as_by_h11",
        "tests/backend/test_framing.py::test_a_broken_answer_is_never_read_as_another",
    ),
    "F07": (_CONNECTION + "test_a_response_has_a_date_and_a_request_id",),
    "F08": (_ROWS + "test_f08_f09_no_header_of_the_client_is_sent_upstream",),
    "F09": (
        _ROWS + "test_f08_f09_no_header_of_the_client_is_sent_upstream",
        "tests/backend/test_http.py::test_only_our_own_headers_go_up",
    ),
    "F10": (
        "tests/edge/test_markers.py::test_every_endpoint_with_a_template_checks_its_texts",
        "tests/edge/test_markers.py::test_a_refused_marker_is_named_and_the_text_is_not_repeated",
        "tests/policy/test_markers.py::test_every_shipped_template_keeps_its_boundaries",
        "tests/policy/test_markers.py::test_escape_breaks",
        "tests/policy/test_role_boundaries.py::test_a_marker_that_a_chat_template_makes_of_other_characters_is_not_sent",
        "tests/policy/test_role_boundaries.py::test_no_request_changes_what_another_request_may_send",
    ),
    "F11": (
        *_cases(_BAD + "test_a22_content_is_delivered_byte_for_byte", "{{7*7}}", "{% for x in y %}"),
        *_cases(_REFUSED, "A18 chat_template"),
    ),
    "F12": (
        "tests/config/test_load.py::test_a_name_is_never_a_path",
        "tests/config/test_load.py::test_a_link_out_of_the_folder_is_refused",
    ),
    "F13": (
        _YAML + "test_what_is_not_plain_data_is_refused_quickly_at_its_line",
        _YAML + "test_a_scalar_means_what_it_looks_like",
    ),
    "F14": (
        "tests/stream/test_linear.py::test_the_work_is_linear",
        "tests/metatemplate/answers/stops/test_stop_cutter.py::test_every_slicing_gives_the_same_text_and_one_finish",
    ),
    "F15": (
        _FIGURES + "test_t14_random_models_and_keys_add_no_series",
        _METRICS + "test_a_model_that_is_not_configured_is_unknown_whatever_it_is_called",
    ),
    "F16": (_KEYS + "test_metrics_on_the_main_listener_require_a_key",),
    "F17": (
        "tests/config/test_load.py::test_secrets_are_never_shown",
        "tests/config/test_load.py::test_a_secret_in_the_wrong_place_is_not_repeated",
        _FIGURES + "test_t13_no_key_prompt_or_header_is_in_errors_metrics_and_logs",
    ),
    "F18": (
        _FIGURES + "test_t13_no_key_prompt_or_header_is_in_errors_metrics_and_logs",
        "tests/journeys/test_failing_targets.py::test_no_key_and_no_content_is_logged",
    ),
    "F19": (
        "tests/edge/test_cache.py::test_no_key_gets_the_answer_of_another_key",
        "tests/edge/test_cache.py::test_no_key_gets_the_answer_of_another_key_through_a_fallback",
    ),
    "F20": (_KEYS + "test_the_model_list_shows_the_models_of_the_key",),
    "F21": (
        "tests/edge/test_cors.py::test_another_origin_can_read_nothing",
        _HOST + "test_the_host_is_checked_on_every_path_except_health",
    ),
    "F22": (
        _BACKEND + "test_nothing_private_of_the_upstream_is_passed_on",
        _BACKEND + "test_keys_and_internal_names_in_a_servers_words_are_removed",
    ),
    "F23": (_ROWS + "test_f23_answers_are_not_compressed",),
    # G. Resource exhaustion
    "G01": ("tests/edge/test_recordings.py::test_a_file_that_cannot_be_written_costs_recordings_and_no_calls",),
    "G02": ("tests/policy/test_recorder.py::test_a_recording_that_finds_the_queue_full_or_closed_is_dropped",),
    "G03": (
        "tests/journeys/test_exhaustion.py::test_a_process_without_free_descriptors_waits_and_then_serves",
        "tests/journeys/test_exhaustion.py::test_a_process_without_free_descriptors_shuts_down",
    ),
    "G04": (
        "tests/faults/test_endless_stream.py::test_folding_an_endless_stream_ends_at_the_size_limit",
        "tests/stream/test_completion_builder.py::test_an_answer_without_end_is_too_large",
    ),
    "G05": ("tests/journeys/test_exhaustion.py::test_an_unread_log_pipe_does_not_block_calls",),
    "G06": ("tests/telemetry/test_attempts.py::test_many_failures_of_one_kind_share_a_line",),
    "G07": ("tests/journeys/test_worst_bodies.py::test_the_worst_bodies_do_not_delay_health",),
    # H. Records
    "H01": (_FIGURES + "test_t11_every_completed_call_is_counted_once_with_the_upstreams_tokens",),
    "H02": ("tests/faults/test_attempts.py::test_the_upstream_the_header_and_the_metric_count_the_same_attempts",),
    "H03": (
        _METRICS + "test_a_client_that_leaves_is_told_by_its_phase",
        _METRICS + "test_a_stream_that_breaks_is_incomplete_and_not_ok",
        _METRICS + "test_an_end_is_counted_as_what_it_was",
        _ROWS + "test_c25_an_endless_stream_ends_at_the_deadline_with_an_error_event",
        _METRICS + "test_a_stream_that_the_gateway_cuts_still_has_tokens_and_a_time_per_token",
        _SHUTDOWN + "test_calls_that_outlast_the_drain_get_an_error",
    ),
    "H04": ("tests/journeys/test_killed_run.py::test_each_row_is_in_the_output_once_after_three_kills",),
    "H05": ("tests/policy/test_recorder.py::test_several_writers_of_one_file_lose_nothing",),
    "H07": (_ROWS + "test_h07_histograms_hold_no_more_calls_than_the_counters",),
    "H08": (
        "tests/edge/test_recordings.py::test_metadata_has_no_text",
        "tests/edge/test_recordings.py::test_the_file_has_mode_0600",
        "tests/edge/test_recordings.py::test_no_key_no_header_and_no_redacted_text_is_recorded_or_logged",
    ),
}
"""Row → its tests."""

NO_TEST: dict[str, str] = {
    "E13": "The figure T10 of scripts/reliability shows it; 100,000 calls take too long for the suite.",
    "H06": "Not in this version: the file of recordings is not rotated.",
    "H09": "Not in this version: recordings are not replayed.",
}
"""Row → why no test shows it."""

FIGURE_TESTS: dict[str, tuple[str, ...]] = {
    "T6": (_RELOAD + "test_sigterm_finishes_a_stream_and_exits_with_0",),
    "T7": (_SHUTDOWN + "test_calls_that_outlast_the_drain_get_an_error",),
    "T8": (_RELOAD + "test_a_broken_edit_keeps_the_old_configuration",),
    "T9": (
        "tests/journeys/test_memory.py::test_100_large_failed_calls_do_not_increase_memory",
        "tests/stream/test_sse.py::test_a_line_without_end_is_refused_before_it_fills_memory",
        *_both("huge-json", "gzip"),
        *_cases(_CODE, "deep-json"),
    ),
    "T12": (
        "tests/policy/test_markers.py::test_every_shipped_template_keeps_its_boundaries",
        "tests/policy/test_markers.py::test_a_chat_template_keeps_its_boundaries",
        "tests/policy/test_markers.py::test_escape_adds_joiners_and_nothing_else",
        "tests/policy/test_markers.py::test_a_tokenizer_reads_no_forged_token_and_no_request_changes_the_verdict_on_another",
    ),
    "T15": ("tests/journeys/test_worst_bodies.py::test_the_worst_bodies_do_not_delay_health",),
}
"""Figure of section 2.1 → the tests that show it. ``scripts/reliability`` measures others."""

NO_FIGURE: dict[str, str] = {
    "T1": "The result of all rows above.",
}
"""Figure → why neither a test nor the script shows it."""

SIZES = {"A": 22, "B": 26, "C": 31, "D": 11, "E": 13, "F": 23, "G": 7, "H": 9}
"""Group → number of its rows; rows are numbered from 1."""


def rows() -> list[str]:
    """The ids of all rows, in order."""
    return [f"{group}{number:02}" for group, size in SIZES.items() for number in range(1, size + 1)]


def matches(reference: str, node: str) -> bool:
    """True: ``reference`` of ``TESTS`` means the test ``node`` (pytest's node id)."""
    function, _, text = reference.partition("[")
    named, _, case = node.partition("[")
    return named == function and text in case
