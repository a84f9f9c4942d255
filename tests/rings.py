"""The rings of the suite: which tests run when, by folder and file.

Each test is in one ring. README's test command runs ``unit``, ``golden``, ``hostile`` and
``clients``; ``.ci/run`` adds ``source`` beside lint and types, and then ``crash``, ``install``,
``spark`` and ``interop``. A test of the ring
``unit`` is also ``fast`` unless its file is in ``SLOW``. ``tests/conftest.py`` makes pytest markers
of the rings; ``python -m tests.rings`` prints the modules of ``fast``, for trial;
``tests/README.md`` is the page.

Tests of one module share servers by ``tests/interop/kept.py``. Files that share a thing of the
whole process, the Spark session, are in ``TOGETHER``: one worker of xdist runs them all.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

__all__ = ["CLIENTS", "LINT", "OUTER", "RINGS", "SLOW", "SLOWEST_FIRST", "SWEEPS", "TOGETHER",
           "fast_modules", "is_wanted", "marks_of", "ring_of", "share_of"]

#: The rings, with a line for the page and for pytest's ``--markers``.
RINGS: Final = {
    "unit": "one part of the product in this process, or a command of it",
    "source": "the source and the pages themselves: layers, prose, what pages list",
    "golden": "files, frames and answers captured from Apache's servers",
    "hostile": "attacks on running servers beside a good client",
    "clients": "one short round with each foreign client",
    "crash": "ends of processes, pairs of brokers, sweeps of settings, and simulations",
    "install": "packages that are built, installed and removed",
    "spark": "the Spark bridge with a running Spark",
    "interop": "Apache's servers, tools and clients against ours",
}
#: The ring that ``.ci/run`` runs beside lint and types: it reads every file of the tree.
LINT: Final = "source"
#: The rings that ``.ci/run`` runs at its end. README's test command leaves out these and ``LINT``.
OUTER: Final = ("crash", "install", "spark", "interop")
#: The short rounds, by file and test.
CLIENTS: Final = {
    "interop/test_rounds.py": (
        "test_java_client_5", "test_java_client_4", "test_go_client", "test_python_client"),
    "interop/test_admin_round.py": (
        "test_java_admin_client_5_3_3_administers_our_broker",),
}
#: Tests that sweep through every moment or every loss of a life, by file: the ring ``crash``, while
#: the other tests of their files are in the ring of the folder.
SWEEPS: Final = {
    "broker/store/test_batch_files.py": ("test_losses_of_power",),
    "plugins/ha/test_receiver.py": ("test_cut_at_every_byte", "test_parts_of_random_sizes"),
    "plugins/timer/test_store_check.py": ("test_no_finding_at_any_moment_of_a_life",),
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
    "broker/store/test_log_cut_crash.py": "crash",
    "broker/store/test_simulation.py": "crash",
    "broker/store/test_simulation_mutations.py": "crash",
    "broker/supervisor/test_supervisor.py": "crash",
    "client/core/test_hostile_brokers.py": "crash",
    "client/event_loop/test_iterations.py": "crash",
    "client/test_simulation.py": "crash",
    "client/test_simulation_mutations.py": "crash",
    "plugins/ha/test_acting_pair.py": "crash",
    "plugins/ha/test_kills.py": "crash",
    "plugins/ha/test_pair_roles.py": "crash",
    "plugins/ha/test_quiet.py": "crash",
    "plugins/ha/test_removed_range.py": "crash",
    "plugins/ha/test_simulation.py": "crash",
    "plugins/ha/test_strain.py": "crash",
    "plugins/ha/test_strangers.py": "crash",
    "transaction/test_kill.py": "crash",
}
#: Files of the ring ``unit`` whose tests take two seconds or more together.
SLOW: Final = frozenset((
    "broker/admin/test_brokers.py", "broker/admin/test_command_line.py",
    "broker/admin/test_completion.py", "broker/admin/test_groups.py", "broker/admin/test_roles.py",
    "broker/admin/test_messages.py", "broker/admin/test_offsets.py", "broker/admin/test_topics.py",
    "client/test_back_pressure.py",
    "client/core/test_hostile_names.py", "client/test_arguments.py", "client/test_damaged.py",
    "client/core/test_cache_bound.py", "client/test_tls.py",
    "client/test_batching.py", "client/test_blocking.py", "client/test_commands.py",
    "client/test_closes.py", "client/test_exits.py", "client/test_signals.py",
    "client/test_readme.py",
    "client/test_hanging_sockets.py", "client/test_pull_consumer.py", "client/test_replies.py",
    "client/event_loop/test_shells.py", "client/test_shells.py", "client/test_tools.py",
    "client/test_absence.py", "client/test_shared_clients.py", "client/test_topic_changes.py",
    "client/test_trace.py", "client/test_transactions.py", "client/test_new_queues.py",
    "client/test_offset_file.py",
    "broker/edge/test_broker_service.py", "broker/edge/test_command_line.py",
    "broker/edge/test_doctor_command.py", "broker/edge/test_logs.py",
    "broker/edge/test_name_server_list.py", "broker/edge/test_services.py",
    "broker/edge/test_setting_changes.py", "broker/edge/test_tls_services.py",
    "broker/namesrv/test_changes.py", "broker/net/test_limits.py", "broker/net/test_run_queue.py",
    "broker/request/test_client_requests.py", "broker/request/test_large_sends.py",
    "broker/request/test_persisted_table.py",
    "broker/request/test_pull_hold.py", "broker/request/test_waiting_by_tag.py",
    "broker/store/test_batch_files.py", "broker/store/test_log_cut.py",
    "broker/store/test_retention.py",
    "broker/store/test_segment_files.py", "broker/testing/test_running.py",
    "broker/wire/bodies/test_body.py", "broker/wire/bodies/test_table_parts.py",
    "broker/store/test_hostile_stores.py", "broker/store/test_message_store.py",
    "broker/wire/test_flags.py",
    "broker/wire/test_headers.py", "broker/wire/test_json_dialect.py",
    "client/core/test_strategies.py", "client/core/test_unique_id.py",
    "client/event_loop/test_pop_consumer.py", "client/test_pop_consumer.py",
    "client/testing/test_pop_cluster.py",
    "plugins/ha/test_pair.py", "plugins/ha/test_receiver.py", "plugins/ha/test_tls.py",
    "plugins/filter_sql92/test_grammar.py", "plugins/flow_control/test_overload.py",
    "plugins/metrics/test_exporter.py", "plugins/pop/test_hold.py",
    "plugins/timer/test_recovery.py", "plugins/timer/test_store_check.py",
    "plugins/timer/test_store_rows.py",
    "test_pickling.py", "test_time_limit.py", "transaction/test_recent.py",
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
    "interop/test_behind.py", "interop/test_proxy.py", "spark_bridge/test_export_process.py",
    "interop/test_rounds.py", "interop/test_tls.py", "interop/test_mixed_cluster.py",
    "interop/test_rules.py", "broker/store/test_simulation_mutations.py",
    "hostile/test_full_tables.py", "hostile/test_clocks.py",
)
#: Files whose tests share a thing that is long to start, by that thing: one worker runs them all.
TOGETHER: Final = {
    "spark session": (
        "interop/test_spark.py", "interop/test_trace_rows.py",
        "spark_bridge/test_export_folder.py",
        "spark_bridge/test_export_job.py", "spark_bridge/test_kill.py", "spark_bridge/test_sink.py",
        "spark_bridge/test_source.py", "spark_bridge/test_store_source.py",
        "spark_bridge/test_stream_source.py", "spark_bridge/test_tls.py",
        "spark_bridge/test_trace_source.py"),
}


def ring_of(file: str, test: str) -> str:
    """The ring of a test.

    :param file: its path below ``tests``, with ``/``.
    :param test: the name of its function.
    """
    if test in CLIENTS.get(file, ()):
        return "clients"
    if test in SWEEPS.get(file, ()):
        return "crash"
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
    rings = {ring_of(file, "")}
    if file in CLIENTS:
        rings.add("clients")
    if file in SWEEPS:
        rings.add("crash")
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


def share_of(file: str) -> str:
    """The tests that one worker runs without a pause: those of a file, or of several.

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
