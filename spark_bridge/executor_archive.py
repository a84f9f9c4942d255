"""The archive that executors on other machines get this package from.

Spark unpacks it into the folder that is on the path of all its Python workers. A file of
``addPyFile`` would not do: formats that Spark finds by itself run without those. Compiled modules
are left out, their sources run as they are. The dependencies of twistmq and of its extra spark must
be installed there.

Source: setup_spark_files of PySpark 4.3.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import twistmq.broker

__all__ = ["SHIPPED", "send_package", "write_archive"]

#: The packages workers import, below twistmq.
SHIPPED: Final = ("protocol", "broker", "client", "spark_bridge")


def send_package(session: Any) -> None:
    """Have every executor of a session get the package, also those that start later.

    A session of Spark Connect sends it to the server, whose executors get it for this session. The
    server plans queries of the formats itself: it needs an installed twistmq.
    """
    archive = f"{write_archive()}#twistmq"
    context = getattr(session, "sparkContext", None)
    if context is None:
        session.addArtifacts(archive, archive=True)
    else:
        context.addArchive(archive)


def write_archive(folder: Path | None = None) -> Path:
    """Write the archive; what is in it belongs into a folder ``twistmq``.

    :param folder: where; a new temporary one when it is not said.
    """
    target = Path(tempfile.mkdtemp(prefix="twistmq-archive-")) if folder is None else folder
    installed = Path(str(twistmq.broker.__file__)).parents[1]
    with tempfile.TemporaryDirectory(prefix="twistmq-archive-") as staged:
        for name in SHIPPED:
            shutil.copytree(installed / name, Path(staged) / name,
                            ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "dropin",
                                                          "formats"))
        return Path(shutil.make_archive(str(target / "twistmq"), "zip", staged))
