"""The rings of the tests: the time at which each test runs, by folder and file.

Each test is in one ring. README's test command runs ``unit``, ``golden``, ``hostile`` and
``clients``; ``.ci/run`` adds ``source`` beside lint and types, and then ``long``, ``crash``,
``install``, ``spark`` and ``interop``. A test of the ring ``unit`` is also ``fast`` unless its file
is in ``SLOW``. ``tests/conftest.py`` makes pytest markers of the rings; ``python -m tests.rings``
prints the modules of ``fast``, for trial; ``tests/README.md`` is the page.

Tests of one module share servers by ``tests/interop/kept.py``. Files that share a thing of the
whole process, the Spark session, are in ``TOGETHER``: one worker of xdist runs them all.
"""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Final

__all__ = ["DRAWN", "ELSEWHERE", "LINT", "OUTER", "RINGS", "SLOW", "SLOWEST_FIRST", "TOGETHER",
           "draw_half", "fast_modules", "is_wanted", "marks_of", "ring_of", "share_of"]

#: The rings, with a line for the page and for pytest's ``--markers``.
RINGS: Final = {
    "unit": "one part of the product in this process, or a command of it",
    "source": "the source and the pages themselves: layers, prose, what pages list",
    "golden": "files, frames and answers captured from Apache's servers",
    "hostile": "attacks on running servers beside a good client",
    "clients": "one short round with each foreign client",
    "long": "of the same parts: costs of many, processes for each case, and waits of seconds",
    "crash": "ends of processes, pairs of brokers, sweeps of settings, and simulations",
    "install": "packages that are built, installed and removed",
    "spark": "the Spark bridge with a running Spark",
    "interop": "Apache's servers, tools and clients against ours",
}
#: The ring that ``.ci/run`` runs beside lint and types: it reads every file of the tree.
LINT: Final = "source"
#: The rings that ``.ci/run`` runs at its end. README's test command leaves out these and ``LINT``.
OUTER: Final = ("long", "crash", "install", "spark", "interop")
#: Tests of another ring than their file, by ring, file and name.
ELSEWHERE: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    # The short rounds.
    "clients": {
        "interop/test_rounds.py": ("test_java_client_5", "test_go_client", "test_python_client"),
    },
    # What reads the whole source.
    "source": {
        "broker/config/test_settings.py": ("test_each_getter_reads_a_setting_of_its_kind",),
    },
    # Sweeps through every moment or every loss of a life, and attacks that take many starts.
    "crash": {
        "broker/store/test_batch_files.py": ("test_losses_of_power",),
        "hostile/test_clocks.py": ("test_input_that_came_meanwhile_is_read_before_silence_counts",),
        "hostile/test_full_disk.py": ("test_logs_tables_and_store_on_the_full_disk",),
        "hostile/test_full_tables.py": ("test_groups_go_on", "test_group_locks"),
        "hostile/test_gone_files.py": (
            "test_log_file_is_cut", "test_log_folder_is_renamed", "test_store_is_removed"),
        "hostile/test_name_server.py": ("test_they_come_and_go",),
        "hostile/test_start.py": (
            "test_commit_log_is_elsewhere", "test_commit_log_is_locked", "test_few_open_files",
            "test_file_in_the_way", "test_files_in_the_way_in_a_store",
            "test_namesrv_port_in_use", "test_nothing_may_be_written",
            "test_several_folders_for_the_log", "test_store_that_may_only_be_read",
            "test_vip_port_in_use", "test_wrong_contents"),
        "plugins/ha/test_receiver.py": ("test_cut_at_every_byte", "test_parts_of_random_sizes"),
        "plugins/timer/test_store_check.py": ("test_no_finding_at_any_moment_of_a_life",),
    },
    "long": {
        "broker/edge/test_clock.py": ("test_blocks_that_grow_side_by_side_leave_no_holes",),
        "broker/edge/test_logs.py": ("test_each_command",),
        "tools/test_command_line.py": (
            "test_a_closed_terminal_ends_it_cleanly_and_other_signals_do_not_end_it",
            "test_a_setting_that_a_plugin_refuses_at_its_start",
            "test_ctrl_c_ends_as_cleanly_as_sigterm",
            "test_many_signals_end_it_as_cleanly_as_one", "test_plugin_that_is_left_out",
            "test_port_in_use", "test_twistd_prints",
            "test_twistd_runs_the_same_services_and_stops_them", "test_twistd_start_fails"),
        "tools/test_store_commands.py": ("test_nobody_reads",),
        "broker/namesrv/test_changes.py": ("test_nothing_is_read", "test_nothing_waits"),
        "broker/net/test_limits.py": ("test_cost_of_many",),
        "broker/net/test_run_queue.py": ("test_cost_of_many",),
        "broker/request/test_client_requests.py": ("test_one_join",),
        "broker/request/test_persisted_table.py": ("test_cost_of_many_rows",),
        "broker/request/test_pull_hold.py": ("test_cost_of_other_tags",),
        "broker/request/test_waiting_by_tag.py": ("test_cost_of_leaving",),
        "broker/scheduling/test_scheduler.py": ("test_cost_of_many_owners",),
        "broker/store/test_segment_files.py": ("test_cost_of_many",),
        "broker/testing/test_in_process_broker.py": (
            "test_the_fixture_works_in_plain_functions_and_imports_late",
            "test_the_package_is_lazy"),
        "client/test_commands.py": (
            "test_a_member_that_is_killed_has_printed_what_it_acknowledged",
            "test_messages_that_may_be_stored_are_told_from_those_that_are_not",
            "test_the_program_loads_no_server_for_a_command_of_the_client"),
        "client/blocking/test_pop_consumer.py": (
            "test_a_slow_handler_has_its_message_once_and_a_failed_one_comes_again",),
        "client/testing/test_pop_cluster.py": ("test_faults_lose_no_message",),
        "console/test_strange_answers.py": (
            "test_a_name_server_that_answers_nonsense", "test_every_value_in_every_place"),
        "plugins/dledger/test_client_simulation.py": (
            "test_a_client_that_does_not_look_for_the_new_leader",
            "test_acknowledgements_without_agreement",
            "test_offsets_that_followers_do_not_copy", "test_the_same_seed_does_the_same"),
        "plugins/dledger/test_kernel_simulation.py": ("test_the_same_seed_does_the_same",),
        "plugins/metrics/test_exporter.py": ("test_library_is_missing", "test_nothing_is_imported"),
        "plugins/pop/test_hold.py": ("test_cost_of_many", "test_cost_of_other_tags"),
        "test_time_limit.py": (
            "test_blocking_calls_and_tests_that_run_the_reactor", "test_workers",
            "test_what_no_alarm_interrupts"),
        "transaction/test_recent.py": ("test_cost_of_many",),
    },
}
#: Files and folders of a ring, relative to this folder; the longest that fits decides.
_PLACES: Final = {
    "": "unit",
    "golden": "golden",
    "hostile": "hostile",
    "interop": "interop",
    "spark_bridge": "spark",
    "test_bounds.py": "source",
    "test_docs.py": "source",
    "test_folder_pages.py": "source",
    "test_layers.py": "source",
    "test_packaging.py": "source",
    "test_prose.py": "source",
    "test_reference_rows.py": "source",
    "test_rings.py": "source",
    "client/test_acceptance.py": "source",
    "test_stock_plugins.py": "crash",
    "test_plugin_package.py": "install",
    "test_release.py": "install",
    "test_setup.py": "install",
    "broker/edge/test_first_signals.py": "crash",
    "broker/edge/test_setting_sweep.py": "crash",
    "test_names.py": "source",
    "integrations/arrow/test_readme.py": "long",
    "integrations/celery/test_celery.py": "long",
    "integrations/celery/test_flower.py": "long",
    "integrations/celery/test_kills.py": "crash",
    "integrations/celery/test_readme.py": "long",
    "integrations/celery/test_transport.py": "long",
    "integrations/dramatiq/test_broker.py": "long",
    "integrations/dramatiq/test_kills.py": "crash",
    "integrations/dramatiq/test_readme.py": "long",
    "integrations/dramatiq/test_worker.py": "long",
    "integrations/opentelemetry": "long",
    "integrations/taskiq/test_broker.py": "long",
    "integrations/taskiq/test_kills.py": "crash",
    "integrations/taskiq/test_readme.py": "long",
    "integrations/taskiq/test_worker.py": "long",
    "client/test_back_pressure.py": "long",
    "console/test_browser.py": "long",
    "client/test_exits.py": "long",
    "client/test_frameworks.py": "long",
    "hostile/test_full_slave.py": "crash",
    "broker/store/test_log_cut_crash.py": "crash",
    "broker/store/test_simulation.py": "crash",
    "broker/store/test_simulation_mutations.py": "crash",
    "broker/supervisor/test_supervised_users.py": "crash",
    "broker/supervisor/test_supervisor.py": "crash",
    "client/core/connection/test_hostile_brokers.py": "crash",
    "client/event_loop/test_iterations.py": "crash",
    "client/test_simulation.py": "crash",
    "client/test_simulation_mutations.py": "crash",
    "plugins/dledger/test_admin_commands.py": "crash",
    "plugins/dledger/test_failover.py": "crash",
    "plugins/dledger/test_group_users.py": "crash",
    "plugins/dledger/test_tls.py": "crash",
    "plugins/ha/test_acting_pair.py": "crash",
    "plugins/ha/test_kills.py": "crash",
    "plugins/ha/test_pair.py": "long",
    "plugins/metrics/test_otlp_exporter.py": "long",
    "plugins/ha/test_pair_roles.py": "crash",
    "plugins/ha/test_quiet.py": "crash",
    "plugins/ha/test_removed_range.py": "crash",
    "plugins/ha/test_simulation.py": "crash",
    "plugins/ha/test_strain.py": "crash",
    "plugins/ha/test_strangers.py": "crash",
    "raft/simulation": "long",
    "tools/doctor/test_group_checks.py": "crash",
    "transaction/test_kill.py": "crash",
}
#: Files of the ring ``unit`` whose tests take two seconds or more together.
SLOW: Final = frozenset((
    "integrations/tables/test_log_pieces.py", "integrations/tables/test_options.py",
    "integrations/tables/test_queue_reader.py",
    "console/test_dead_letter_pages.py", "console/test_in_process.py",
    "console/test_reset_pages.py", "console/test_trace_pages.py",
    "tools/admin/test_brokers.py", "tools/admin/test_command_line.py",
    "tools/admin/test_completion.py", "tools/admin/test_groups.py",
    "tools/admin/test_messages.py", "tools/admin/test_offsets.py", "tools/admin/test_roles.py",
    "tools/admin/test_topics.py", "broker/edge/test_broker_service.py",
    "tools/test_command_line.py", "tools/test_doctor_command.py",
    "broker/edge/test_logs.py", "broker/edge/test_name_server_list.py",
    "plugins/dledger/test_client_simulation.py",
    "plugins/dledger/test_kernel_simulation.py", "plugins/dledger/test_mutated_bodies.py",
    "plugins/dledger/test_progress.py", "plugins/dledger/test_store_simulation.py",
    "raft/exploration/test_exploration.py",
    "broker/edge/test_services.py", "broker/edge/test_setting_changes.py",
    "broker/edge/test_tls_services.py", "broker/namesrv/test_changes.py",
    "broker/net/test_limits.py", "broker/net/test_run_queue.py",
    "broker/request/test_client_requests.py", "broker/request/test_large_sends.py",
    "broker/request/test_persisted_table.py", "broker/request/test_pull_hold.py",
    "broker/request/test_waiting_by_tag.py", "broker/store/test_batch_files.py",
    "broker/store/test_hostile_stores.py", "broker/store/test_log_cut.py",
    "broker/store/test_message_store.py", "broker/store/test_retention.py",
    "broker/store/test_segment_files.py", "broker/testing/test_in_process_broker.py",
    "protocol/bodies/test_body.py", "protocol/bodies/test_table_parts.py",
    "protocol/test_flags.py", "protocol/test_headers.py", "protocol/test_json_dialect.py",
    "client/core/consumer/test_cache_bound.py", "client/core/connection/test_hostile_names.py",
    "client/core/consumer/test_strategies.py", "client/core/producer/test_unique_id.py",
    "client/event_loop/test_pop_consumer.py", "client/event_loop/test_shells.py",
    "client/test_absence.py", "client/test_forks.py", "client/shell/test_arguments.py",
    "client/blocking/test_thread_batcher.py",
    "client/blocking/test_client.py", "client/test_closes.py", "client/test_commands.py",
    "client/test_damaged.py", "client/test_hanging_sockets.py",
    "client/test_interruptions.py",
    "client/test_new_queues.py", "client/shell/test_offset_file.py",
    "client/blocking/test_pop_consumer.py",
    "client/blocking/test_pull_consumer.py", "client/test_readme.py", "client/test_replies.py",
    "client/test_shared_clients.py", "client/test_shells.py", "client/test_signals.py",
    "client/shell/test_tls.py", "client/test_tools.py", "client/test_topic_changes.py",
    "client/test_trace.py", "client/test_transactions.py", "client/testing/test_pop_cluster.py",
    "plugins/filter_sql92/test_grammar.py", "plugins/flow_control/test_overload.py",
    "plugins/ha/test_receiver.py", "plugins/ha/test_tls.py", "plugins/metrics/test_exporter.py",
    "plugins/pop/test_hold.py", "plugins/timer/test_recovery.py",
    "plugins/timer/test_store_check.py", "plugins/timer/test_store_rows.py", "test_pickling.py",
    "test_time_limit.py", "transaction/test_recent.py",
))
#: Files that take longest: they are begun first, so that no worker is left with one at the end.
SLOWEST_FIRST: Final = (
    "test_release.py", "interop/test_replica_stores.py", "interop/test_pair_tools.py",
    "interop/test_replica_times.py",
    "interop/test_client_access.py", "interop/test_lost_end.py",
    "interop/test_client_members.py", "interop/test_acting_pair.py",
    "interop/test_pair_contents.py", "interop/test_replica_kills.py",
    "interop/test_client_closes.py", "plugins/ha/test_strain.py",
    "interop/test_pair_consumers.py", "interop/test_slave_reads.py",
    "interop/test_replica_tables.py",
    "plugins/ha/test_removed_range.py", "spark_bridge/test_tls.py", "interop/test_timers.py",
    "interop/test_client_tools.py", "interop/test_client_retries.py",
    "interop/test_client_answers.py", "interop/test_client_sends.py",
    "interop/test_client_groups.py", "interop/test_client_pop.py",
    "interop/test_pop.py", "interop/test_acl.py", "interop/test_filter.py",
    "interop/test_exchange.py", "interop/test_static_topics.py", "interop/test_extension.py",
    "interop/test_transactions.py", "interop/test_clean.py", "interop/test_mqadmin.py",
    "interop/test_orderly_members.py", "interop/test_trace.py", "interop/test_batch_queues.py",
    "interop/test_flow_control.py", "interop/test_answers.py", "interop/test_lost_producer.py",
    "interop/test_behind.py", "interop/test_proxy.py", "spark_bridge/test_faults.py",
    "spark_bridge/test_export_process.py",
    "interop/test_rounds.py", "interop/test_tls.py", "interop/test_mixed_cluster.py",
    "interop/test_rules.py", "broker/store/test_simulation_mutations.py",
    "hostile/test_full_tables.py", "hostile/test_clocks.py",
)
#: Files of outer rings that take from forty seconds to four minutes, most of it in starts of Java
#: and in waits. A run that selects rings draws half of these files, and names the other half in its
#: last lines. ``TWISTMQ_TESTS=whole`` and a run of named files leave out none.
DRAWN: Final = (
    "broker/store/test_simulation_mutations.py",
    "interop/test_acl.py", "interop/test_acting_pair.py", "interop/test_auth_proxy.py",
    "interop/test_auth_tools.py", "interop/test_clean.py", "interop/test_client_answers.py",
    "interop/test_client_groups.py", "interop/test_client_members.py",
    "interop/test_client_pairs.py", "interop/test_client_pop.py",
    "interop/test_client_retries.py", "interop/test_client_sends.py",
    "interop/test_client_tools.py", "interop/test_dledger_answers.py",
    "interop/test_dledger_no_leader.py", "interop/test_exchange.py", "interop/test_extension.py",
    "interop/test_filter.py", "interop/test_index_rounds.py", "interop/test_mqadmin.py",
    "interop/test_pair_consumers.py", "interop/test_pair_contents.py", "interop/test_pop.py",
    "interop/test_pop_kills.py", "interop/test_proxy.py", "interop/test_redelivery_kill.py",
    "interop/test_replica_stores.py", "interop/test_replica_tables.py",
    "interop/test_replica_times.py", "interop/test_replication.py", "interop/test_slave_reads.py",
    "interop/test_static_topics.py", "interop/test_timer_kills.py", "interop/test_timers.py",
    "interop/test_trace.py", "interop/test_transactions.py",
    "plugins/ha/test_removed_range.py", "plugins/ha/test_strain.py",
    "spark_bridge/test_faults.py", "spark_bridge/test_kill.py", "spark_bridge/test_tls.py",
)
#: Files whose tests share a thing that is long to start, by that thing: one worker runs them all.
TOGETHER: Final = {
    "spark session": (
        "interop/test_spark.py", "interop/test_trace_rows.py", "spark_bridge/test_accounts.py",
        "spark_bridge/test_export_folder.py",
        "spark_bridge/test_export_job.py", "spark_bridge/test_kill.py", "spark_bridge/test_sink.py",
        "spark_bridge/test_source.py", "spark_bridge/test_store_source.py",
        "spark_bridge/test_stream_source.py", "spark_bridge/test_tls.py",
        "spark_bridge/test_trace_source.py"),
}


def ring_of(file: str, test: str) -> str:
    """Return the ring of a test.

    :param file: its path below ``tests``, with ``/``.
    :param test: the name of its function.
    """
    for ring, files in ELSEWHERE.items():
        if test in files.get(file, ()):
            return ring
    if file.rpartition("/")[2] == "test_crash.py":
        return "crash"
    place = file
    while place not in _PLACES:
        place = place.rpartition("/")[0]
    return _PLACES[place]


def marks_of(file: str) -> list[set[str]]:
    """The sets of marks that tests of a file have: one, or two where a table names some tests.

    :param file: its path below ``tests``, with ``/``.
    """
    rings = {ring_of(file, ""), *(ring for ring, files in ELSEWHERE.items() if file in files)}
    return [{ring, "fast"} if ring == "unit" and file not in SLOW else {ring} for ring in rings]


def is_wanted(file: str, expression: str) -> bool:
    """Whether a test of this file may be among those that ``pytest -m`` selects.

    A worker of xdist imports every file that it collects, which takes longer than many a test. So
    a file of another ring is not collected at all.

    :param file: its path below ``tests``, with ``/``.
    :param expression: what ``-m`` is given, an empty text without ``-m``. A file is wanted where
        the expression has other marks than rings.
    """
    try:
        tree = ast.parse(expression.strip() or "True", mode="eval").body
        return any(_holds(tree, marks) for marks in marks_of(file))
    except (SyntaxError, ValueError):
        return True


def _holds(node: ast.expr, marks: set[str]) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_holds(value, marks) for value in values)
        case ast.BoolOp(values=values):
            return any(_holds(value, marks) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _holds(operand, marks)
        case ast.Constant(value=bool(value)):
            return value
        case ast.Name(id=name) if name in RINGS or name == "fast":
            return name in marks
    raise ValueError(f"more than rings: {ast.unparse(node)}")


def draw_half() -> list[str]:
    """Draw the half of the files in ``DRAWN`` that a run leaves out, in a random order."""
    return random.sample(DRAWN, len(DRAWN) // 2)


def share_of(file: str) -> str:
    """Return the share of a file: the tests that one worker runs without a pause.

    :param file: its path below ``tests``, with ``/``.
    :returns: a name for them.
    """
    return next((thing for thing, files in TOGETHER.items() if file in files), file)


def fast_modules() -> list[str]:
    """The modules of the ring ``fast``, which is a ring of whole files."""
    tests = Path(__file__).parent
    files = sorted(file.relative_to(tests).as_posix() for file in tests.rglob("test_*.py"))
    return [f"tests.{file.removesuffix('.py').replace('/', '.')}" for file in files
            if ring_of(file, "") == "unit" and file not in SLOW]


if __name__ == "__main__":
    print("\n".join(fast_modules()))
