"""Imported by tests; skips them where the extra ``spark`` is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from unittest import SkipTest

if find_spec("pyarrow") is None or find_spec("pyspark") is None:
    raise SkipTest("the extra spark is not installed: pip install 'twistmq[spark]'")
