"""Checks and listings of the files that a plugin keeps in a store.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.store.inspect.dump import Wanted, escaped, time_text
from twistmq.broker.store.inspect.files import Segments, common_size, segment_sizes
from twistmq.broker.store.inspect.json_files import check_json_file
from twistmq.broker.store.inspect.layout import StoreFiles, report_files
from twistmq.broker.store.inspect.log_walk import LogWalk
from twistmq.broker.store.inspect.plugin_files import FilesCheck, PluginFiles
from twistmq.broker.store.inspect.report import Report

__all__ = [
    "FilesCheck",
    "LogWalk",
    "PluginFiles",
    "Report",
    "Segments",
    "StoreFiles",
    "Wanted",
    "check_json_file",
    "common_size",
    "escaped",
    "report_files",
    "segment_sizes",
    "time_text",
]
