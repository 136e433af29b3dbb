"""A server with OpenAI's interface that answers from a script: a list of replies, the last one again and again."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Reply = Callable[["_Handler", dict[str, Any]], None]

__all__ = ["Server", "answer", "chat", "cut", "hang", "raw", "serve", "status", "stream"]


@dataclass
class Server:
    """What a test sees of the server.

    Attributes:
        url: its base URL.
        requests: the bodies it got, in order.
        paths: where they were sent.
    """

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.seen.requests.append(body)
            self.server.seen.paths.append(self.path)
            script = self.server.script
            reply = script[0] if len(script) == 1 else script.pop(0)
        reply(self, body)

    def send(self, code: int, body: bytes, headers: dict[str, str] | None = None, *, length: int | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        if length is not None:
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Keeps the test's output clean."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, script: list[Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.script = script
        self.seen = Server(f"http://127.0.0.1:{self.server_address[1]}/v1")


def chat(content: Any, finish_reason: str | None = "stop", **fields: Any) -> dict[str, Any]:
    """Returns the body of a response; fields named `message_...` go into its message, `top_...` beside its choices."""
    message = {"role": "assistant", "content": content}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish_reason}
    body: dict[str, Any] = {"id": "1", "object": "chat.completion", "model": "m", "created": 1, "choices": [choice]}
    for name, value in fields.items():
        where, _, key = name.partition("_")
        match where:
            case "message":
                message[key] = value
            case "top":
                body[key] = value
            case _:
                choice[name] = value
    return body


def answer(content: Any, finish_reason: str | None = "stop", **fields: Any) -> Reply:
    return raw(json.dumps(chat(content, finish_reason, **fields)).encode())


def raw(body: bytes, code: int = 200, headers: dict[str, str] | None = None) -> Reply:
    return lambda handler, _: handler.send(code, body, headers)


def status(code: int, message: str, *, headers: dict[str, str] | None = None, error_code: str | None = None) -> Reply:
    body = json.dumps({"error": {"message": message, "type": "x", "code": error_code}}).encode()
    return raw(body, code, headers)


def cut(body: bytes, headers: dict[str, str] | None = None) -> Reply:
    """Promises more bytes than it sends, then closes."""
    return lambda handler, _: handler.send(200, body, headers, length=len(body) + 100)


def hang(handler: _Handler, _: dict[str, Any]) -> None:
    """Answers when the test is over, or after seconds that no test waits."""
    handler.server.released.wait(30)
    handler.close_connection = True


def stream(events: Sequence[Any], *, done: bool = True) -> Reply:
    lines = [e if isinstance(e, str) else json.dumps(e) for e in events] + (["[DONE]"] if done else [])
    body = "".join(f": comment\n\ndata: {line}\n\n" for line in lines)
    return raw(body.encode(), 200, {"Content-Type": "text/event-stream"})


@contextmanager
def serve(*script: Reply) -> Iterator[Server]:
    """Serves the replies in order; the last one is repeated."""
    server = _Http(list(script))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.seen
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
