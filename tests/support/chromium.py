"""A headless Chromium, driven through its pipe: pages are opened, keys pressed, screenshots taken."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

__all__ = ["CHROMIUM", "Browser"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
_PATIENCE = 90.0  # seconds until a test gives up on an answer


def _high(descriptor: int) -> int:
    """Moves a descriptor out of the way of 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Browser:
    """One browser with one page.

    Args:
        profile: an empty folder for its profile.
        size: of the window.
        dark: whether the system prefers dark colours.
    """

    def __init__(self, profile: Path, *, size: tuple[int, int] = (1400, 900), dark: bool = False) -> None:
        assert CHROMIUM is not None
        # The browser reads commands from its descriptor 3 and writes to 4; a shell puts them there.
        read, self._out = map(_high, os.pipe())
        self._in, write = map(_high, os.pipe())
        flags = [*_FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", "--remote-debugging-pipe"]
        flags.append(f"--blink-settings=preferredColorScheme={0 if dark else 1}")
        command = ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write} {read}<&- {write}>&-', "bash", CHROMIUM, *flags]
        self._process = subprocess.Popen(
            [*command, "about:blank"],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read)
        os.close(write)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.problems: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Sends a command and returns its result; events that come meanwhile are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while (answer := self._receive()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])
            case _:
                pass

    def open(self, page: Path, place: str = "") -> None:
        """Opens a page and waits until it shows what it was asked for."""
        self.call("Page.navigate", url=page.resolve().as_uri() + place)
        self.wait("document.body && document.body.dataset.ready === 'yes'")

    def run(self, script: str) -> Any:
        """Returns the value of an expression."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.run(f"!!({condition})"):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Presses keys, one after the other, and waits until the page has followed."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            code = {"Enter": 13, "Escape": 27, "Home": 36, "End": 35}.get(key, 0)
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)
        self.wait("document.body.dataset.ready === 'yes'")

    def screenshot(self, path: Path) -> None:
        """Writes what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """Ends the browser and all its processes."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
