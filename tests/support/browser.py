"""A real browser for tests of pages: headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

#: Names of the program in distributions; None where it is not installed.
CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_SECONDS: Final = 60


class Page:
    """One tab.

    Attributes:
        problems: errors that the pages since :meth:`open` have reported: exceptions, messages of level error, and files
            that did not load.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._loop, self._socket, self._number = loop, socket, 0
        self.problems: list[str] = []
        self._events: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def open(self, url: str, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Load a page in a window of this many pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self.problems.clear()
        self._events.clear()
        self._send("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def evaluate(self, script: str) -> Any:
        """The value of an expression of JavaScript, as JSON; promises are awaited."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def hover(self, x: float, y: float) -> None:
        """Move the pointer to a point of the window."""
        self._send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str, code: int) -> None:
        """Press and release a key, such as ``Tab``, which has a code of Windows' virtual keys."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page as PNG."""
        answer = self._send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = json.dumps({"id": self._number, "method": method, "params": parameters})
        self._loop.run_until_complete(self._socket.send_str(message))
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        """The next message; events are noted."""
        message: dict[str, Any] = self._loop.run_until_complete(
            asyncio.wait_for(self._socket.receive_json(), timeout=_SECONDS)
        )
        method, content = str(message.get("method", "")), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(content["exceptionDetails"]))
        elif method == "Log.entryAdded" and content["entry"]["level"] == "error":
            self.problems.append(f"{content['entry']['text']} {content['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and content["type"] in {"error", "assert"}:
            self.problems.append(str(content["args"]))
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A tab of a new browser.

    Args:
        folder: an empty folder for its profile.
    """
    assert CHROMIUM is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    command = [CHROMIUM, *options, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    loop = asyncio.new_event_loop()
    try:
        assert process.stderr is not None
        line = next(each for each in process.stderr if each.startswith("DevTools listening on "))
        # The address is that of the browser; the list has the address of its tab.
        address = line.split("//")[1].split("/")[0]
        session = loop.run_until_complete(_session())
        socket = loop.run_until_complete(_tab(session, address))
        yield Page(loop, socket)
        loop.run_until_complete(socket.close())
        loop.run_until_complete(session.close())
    finally:
        process.kill()
        process.communicate()
        loop.close()


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


async def _tab(session: aiohttp.ClientSession, address: str) -> aiohttp.ClientWebSocketResponse:
    async with session.get(f"http://{address}/json/list") as answer:
        (tab,) = [each for each in await answer.json() if each["type"] == "page"]
    return await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
