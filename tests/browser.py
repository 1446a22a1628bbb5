"""Headless Chromium, driven over a pipe by its own protocol (DevTools): no port, no driver, no network."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from device_kinds import need_program

# A name, or any other text, that wants to be more than text.
HOSTILE = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">\0\u202e\ud800&amp;"\'<!--'

_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", "--hide-scrollbars", "--force-device-scale-factor=1")
_PATIENCE_S = 60.0


class Tab:
    """A tab: a page, its scripts, its keys and its pictures."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send, self._receive, self._number = send, receive, 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The result of a command of the protocol; what the page complains of meanwhile is in `errors`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if getattr(self, "_session", None) is not None:
            message["sessionId"] = self._session
        self._send(message)
        while True:
            told = self._receive()
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                return told["result"]
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        if told.get("method") == "Runtime.exceptionThrown":
            details = told["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
            self.errors.append(told["params"]["entry"]["text"])

    def open(self, address: str) -> None:
        """Goes to an address, and waits until it is loaded."""
        self.run("window.left = true")
        self.call("Page.navigate", url=address)
        self.wait("!window.left && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page, or of the promise that it is."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, script: str) -> Any:
        """The value of an expression once it is true."""
        end = time.monotonic() + _PATIENCE_S
        while not (found := self.run(script)):
            assert time.monotonic() < end, f"never: {script}; {self.errors}"
            time.sleep(0.03)
        return found

    def press(self, key: str, *, code: int = 0, text: str = "", shift: bool = False) -> None:
        """A key, as a person presses it."""
        given = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def click(self, selector: str) -> None:
        """A click of the mouse on the middle of an element."""
        found = f"document.querySelector({json.dumps(selector)})"
        x, y = self.run(f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); return e.getBoundingClientRect(); }})({found}), "
                        f"(r => [r.x + r.width / 2, r.y + r.height / 2])({found}.getBoundingClientRect())")  # fmt: skip
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=1)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and the colours that the system prefers; nothing moves by itself."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        preferred = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[{"name": name, "value": value} for name, value in preferred.items()])

    def picture(self, path: Path) -> None:
        """Writes what is to be seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def tree(self) -> list[dict[str, Any]]:
        """What a screen reader gets: the nodes of the accessibility tree that are not ignored."""
        return [node for node in self.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]


@contextmanager
def browser_tab(folder: Path) -> Iterator[Tab]:
    """A tab of a Chromium of its own, whose files lie in a folder. Without Chromium the test is skipped, or fails where it is required."""
    need_program("chromium", "chromium")
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    # Chromium reads from 3 and writes to 4; through high numbers, since one of ours may be 3 or 4 itself.
    redirected = f'exec 8<&{theirs_in} 9>&{theirs_out}; exec chromium "$@" 3<&8 4>&9'
    process = subprocess.Popen(
        ["bash", "-c", redirected, "chromium", *_FLAGS, f"--user-data-dir={folder / 'profile'}"], pass_fds=(theirs_in, theirs_out),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(folder)}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    waiting = b""

    def send(message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(ours_out, data) :]

    def receive() -> dict[str, Any]:
        nonlocal waiting
        while b"\0" not in waiting:
            data = os.read(ours_in, 1 << 16)
            assert data, "Chromium has ended"
            waiting += data
        message, _, waiting = waiting.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told

    try:
        yield Tab(send, receive)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: the processes that it started
        process.wait()
        os.close(ours_out)
        os.close(ours_in)
