"""The archive from which executors on other machines get this package.

Spark unpacks the archive into a folder that is on the import path of all its Python workers. The
method ``addPyFile`` is not sufficient, because Spark does not provide its files to the workers of
data sources that it discovers automatically. The archive contains sources instead of compiled
modules. The dependencies of twistmq and of its extra ``spark`` must be installed on each machine.

Source: setup_spark_files of PySpark 4.3.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import twistmq.broker

__all__ = ["SHIPPED", "send_package", "write_archive"]

#: The packages below twistmq that workers import.
SHIPPED: Final = ("protocol", "broker", "client", "integrations/tables", "spark_bridge")


def send_package(session: Any) -> None:
    """Provide the package to all executors of a session, also to executors that start later.

    A session of Spark Connect sends the archive to the server, which provides it to the executors
    of this session. The server plans the queries itself, so twistmq must be installed there.
    """
    archive = f"{write_archive()}#twistmq"
    context = getattr(session, "sparkContext", None)
    if context is None:
        session.addArtifacts(archive, archive=True)
    else:
        context.addArchive(archive)


def write_archive(folder: Path | None = None) -> Path:
    """Write the archive, whose contents must be unpacked into a folder ``twistmq``.

    :param folder: the folder of the archive; None for a new temporary folder.
    """
    target = Path(tempfile.mkdtemp(prefix="twistmq-archive-")) if folder is None else folder
    installed = Path(str(twistmq.broker.__file__)).parents[1]
    with tempfile.TemporaryDirectory(prefix="twistmq-archive-") as staged:
        for name in SHIPPED:
            shutil.copytree(installed / name, Path(staged) / name,
                            ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "dropin",
                                                          "formats"))
        return Path(shutil.make_archive(str(target / "twistmq"), "zip", staged))
