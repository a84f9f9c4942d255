"""The tests of the broker for Taskiq, which are skipped where the extra is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from unittest import SkipTest

if find_spec("taskiq") is None:
    raise SkipTest("the extra taskiq is not installed: pip install 'twistmq[taskiq]'")
