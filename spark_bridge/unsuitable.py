"""The source that stands for a format which cannot be used in this environment.

Spark imports all modules named ``pyspark_*`` in one go, and an exception of one of them hides the
sources of all others, other packages' too. The modules of the formats therefore register a source
from here where the real one cannot be imported: a query of the format then says what is missing,
and other queries do not notice.

This module imports nothing but PySpark, and that only when it is asked for a source.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

__all__ = ["UnsuitableEnvironment", "unsuitable_source"]

#: The packages a format needs, with the oldest version that does, as setup.cfg has them.
_NEEDED: Final = (("pyspark", "4.0"), ("pyarrow", "18"), ("pandas", "2.2"))


class UnsuitableEnvironment(RuntimeError):
    """A format cannot be used with what is installed; the text says what it needs."""


def unsuitable_source(name: str, error: Exception) -> Any:
    """The data source of a format whose own source cannot be imported.

    :param name: of the format.
    :param error: what importing its source raised.
    :returns: a class whose methods all raise :class:`UnsuitableEnvironment`; None where PySpark
        has no Python data sources at all, so that nothing looks for one.
    """
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:
        return None
    text = (f'format("{name}") cannot be used in this environment: it needs '
            + _listed([f"{package} {least} or later" for package, least in _NEEDED])
            + "; installed: " + _listed([f"{package} {_installed(package)}"
                                         for package, _ in _NEEDED])
            + f" ({type(error).__name__}: {error})")

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsuitableEnvironment(text)

    return type("UnsuitableSource", (DataSource,), {
        "name": classmethod(lambda cls: name), "schema": refuse, "reader": refuse,
        "streamReader": refuse, "simpleStreamReader": refuse, "writer": refuse,
        "streamWriter": refuse})


def _installed(package: str) -> str:
    """The version of a package, or the word for none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
