"""A substitute for the source of a format that cannot be used in this environment.

Spark imports all modules named ``pyspark_*`` together, and an exception in one of them hides the
sources of all such modules, including the modules of other packages. If the real source cannot be
imported, the module of the format therefore registers a source from here. A query of the format
then fails with a text that lists the missing packages, and other queries are not affected.

This module imports only PySpark, and only when a source is requested.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

__all__ = ["UnsuitableEnvironment", "unsuitable_source"]

#: The packages that a format needs, each with the oldest supported version, as in setup.cfg.
_NEEDED: Final = (("pyspark", "4.0"), ("pyarrow", "18"), ("pandas", "2.2"))


class UnsuitableEnvironment(RuntimeError):
    """A format cannot be used with the installed packages; the text lists the required ones."""


def unsuitable_source(name: str, error: Exception) -> Any:
    """Make a data source for a format whose own source cannot be imported.

    :param name: the name of the format.
    :param error: the error that the import of its source raised.
    :returns: a class whose methods all raise :class:`UnsuitableEnvironment`. It is None if PySpark
        does not support Python data sources, so that Spark does not look for one.
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
    """Return the installed version of a package, or "missing"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
