"""Make archives of the classes that Apache's programs load, so that their starts are faster.

    python -m tests.interop.share [VERSION ...]      5.3.3 and 4.9.4 when none is named

Java maps such an archive instead of reading, checking and linking two to six thousand classes. It
is of one Java and of one release's jars, and stays beside them; where it is missing, programs start
without. Which classes: those that the servers, the tool and a client load in a short life.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.interop.clients import JAVA_VERSIONS, java_missing, java_program
from tests.interop.mqadmin import mqadmin
from tests.interop.peer import ARCHIVE, Peer, class_path, jars_folder, wait_for_registration
from tests.interop.ports import free_port

#: Options that every `java` reads.
OPTIONS: Final = "JDK_JAVA_OPTIONS"
#: Making an archive has ended after this, seconds.
TIMEOUT: Final = 300.0


@contextmanager
def listing(file: Path) -> Iterator[None]:
    """Have a program that starts in this block write the names of its classes to a file."""
    os.environ[OPTIONS] = f"-XX:DumpLoadedClassList={file}"
    try:
        yield
    finally:
        del os.environ[OPTIONS]


def write_lists(version: str, folder: Path, lists: Path) -> None:
    """Run one program of each kind, whose lists of classes go into a folder."""
    peer = Peer(folder / "peer", version, free_port(), free_port(), "512m")
    where = peer.namesrv_address
    try:
        with listing(lists / "namesrv"):
            peer.start_namesrv()
        with listing(lists / "broker"):
            peer.start_broker()
        wait_for_registration(peer.namesrv_port, peer.broker_port)
        with listing(lists / "mqadmin"):
            mqadmin(where, ["clusterList", "topicList", "statsAll"], version=version)
        with listing(lists / "send"):
            java_program(version, "EveryByte", where, "send", "Shared")
        with listing(lists / "read"):
            java_program(version, "EveryByte", where, "read", "1", "Shared")
    finally:
        peer.stop()


def share(version: str) -> Path:
    """Make the archive of one release; :returns: its file."""
    home = jars_folder(version)
    with tempfile.TemporaryDirectory(prefix="twistmq-share-", dir=home) as name:
        folder = Path(name)
        lists = folder / "lists"
        lists.mkdir()
        write_lists(version, folder, lists)
        lines = {line: None for path in sorted(lists.iterdir())
                 for line in path.read_text().splitlines() if not line.startswith("#")}
        (folder / "all").write_text("".join(f"{line}\n" for line in lines))
        subprocess.run(
            ["java", "-Xshare:dump", "-Xlog:disable", "-Xlog:all=error:stderr",
             f"-XX:SharedClassListFile={folder / 'all'}",
             f"-XX:SharedArchiveFile={folder / ARCHIVE}", "-cp", class_path(version)],
            check=True, timeout=TIMEOUT)
        return (folder / ARCHIVE).rename(home / ARCHIVE)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(JAVA_VERSIONS))
    for version in parser.parse_args().versions:
        reason = java_missing(version)
        if reason:
            print(f"{version}: {reason}")
            continue
        archive = share(version)
        print(f"{archive}: {archive.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
