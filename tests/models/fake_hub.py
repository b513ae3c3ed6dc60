"""A Hugging Face hub of one repository on this machine: the few routes that a snapshot download asks for."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = "someone/tiny"
_COMMIT = "a" * 40


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve the files of `folder` as `someone/tiny` and yield the address of the hub."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(folder: Path) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = path.removeprefix(f"/{REPOSITORY}/resolve/{_COMMIT}/")
            if path in {f"/api/models/{REPOSITORY}", f"/api/models/{REPOSITORY}/revision/main"}:
                siblings = [{"rfilename": item.name} for item in folder.iterdir()]
                self._send(json.dumps({"id": REPOSITORY, "sha": _COMMIT, "siblings": siblings}).encode())
            elif path == f"/api/models/{REPOSITORY}/tree/{_COMMIT}":
                self._send(json.dumps([_tree_entry(item) for item in folder.iterdir()]).encode())
            elif name != path and (folder / name).is_file():
                self._send((folder / name).read_bytes(), ETag=f'"{_digest(folder / name)}"')
            else:
                self._send(b"", status=404, **{"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET  # noqa: N815

        def _send(self, body: bytes, *, status: int = 200, **headers: str) -> None:
            self.send_response(status)
            for key, value in {"X-Repo-Commit": _COMMIT, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


def _tree_entry(item: Path) -> dict[str, object]:
    return {"type": "file", "path": item.name, "size": item.stat().st_size, "oid": _digest(item)}


def _digest(item: Path) -> str:
    return hashlib.sha1(item.read_bytes()).hexdigest()
