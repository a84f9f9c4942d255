"""A stand-in for S3: objects are the files of a folder, and pyarrow reads them over HTTP.

It answers what a reader asks: which objects there are below a prefix, how long one is, and a range
of one. Signatures are not looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["SECRET", "ObjectStore", "object_store"]

#: The secret key of the URI.
SECRET = "Zx9secretQ"


class ObjectStore:
    """The server.

    :param root: each folder in it is a bucket.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        #: The ranges that were asked for: key, first and last byte.
        self.ranges: list[tuple[str, int, int]] = []
        #: What to answer in place of an object: its status.
        self.failure = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def uri(self, path: str) -> str:
        """Return the URI of a path that begins with the bucket."""
        port = self._server.server_address[1]
        return (f"s3://key:{SECRET}@{path}?region=us-east-1&scheme=http"
                f"&endpoint_override=127.0.0.1:{port}")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> Any:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                place = unquote(parts.path).strip("/")
                path = store.root / place
                if "list-type" in parts.query:
                    self._answer(200, store.listing(place, parse_qs(parts.query)))
                elif store.failure:
                    self._answer(store.failure, b"<Error><Code>AccessDenied</Code></Error>")
                elif not path.is_file():
                    self._answer(404 if not path.is_dir() or "/" in place else 200, b"")
                else:
                    self._object(place, path)

            def _object(self, place: str, path: Path) -> None:
                size, wanted = path.stat().st_size, self.headers.get("Range")
                if wanted is None:
                    self._answer(200, b"", size)
                    return
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                begin, end = int(first), min(int(last), size - 1)
                store.ranges.append((place, begin, end))
                with path.open("rb") as file:
                    file.seek(begin)
                    self._answer(206, file.read(end - begin + 1), extra={
                        "Content-Range": f"bytes {begin}-{end}/{size}"})

            def _answer(self, status: int, body: bytes, size: int | None = None,
                        extra: dict[str, str] | None = None) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body) if size is None else size),
                                    "Last-Modified": "Sun, 01 Nov 2026 10:00:00 GMT",
                                    "ETag": '"1"', **(extra or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        return Handler

    def listing(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        """The objects and folders right below a prefix, as S3 lists them."""
        prefix = query.get("prefix", [""])[0]
        keys, folders = [], set()
        for path in sorted((self.root / bucket).rglob("*")):
            key = str(path.relative_to(self.root / bucket))
            if path.is_file() and key.startswith(prefix):
                name, slash, _ = key[len(prefix):].partition("/")
                if slash and "delimiter" in query:
                    folders.add(f"{prefix}{name}/")
                else:
                    keys.append((key, path.stat().st_size))
        inner = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
            "<LastModified>2026-11-01T10:00:00.000Z</LastModified></Contents>"
            for key, size in keys)
        inner += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
                         for name in sorted(folders))
        return (f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
                f"<KeyCount>{len(keys) + len(folders)}</KeyCount><MaxKeys>1000</MaxKeys>"
                f"<IsTruncated>false</IsTruncated>{inner}</ListBucketResult>").encode()


@contextmanager
def object_store(root: Path) -> Iterator[ObjectStore]:
    """Run a stand-in during the block."""
    store = ObjectStore(root)
    try:
        yield store
    finally:
        store.close()
