"""A headless Chromium, driven by its DevTools protocol over a pipe: nothing to install but the browser."""

import json
import os
import subprocess
import time
from pathlib import Path


class Browser:
    """Tab of a headless Chromium, with its `errors`, the addresses of its `requests`, and the one `opened`."""

    def __init__(self, profile: Path):
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        command = [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        # The browser reads its file 3 and writes its file 4. A plain sh knows numbers of one digit only.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._read, self._session = 0, b"", None
        self.errors, self.requests, self.opened = [], [], "about:blank"
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        """Send a command; return its result."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters} | session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self):
        while b"\0" not in self._read:
            more = os.read(self._from, 2**16)
            assert more, "the browser has ended"
            self._read += more
        line, self._read = self._read.split(b"\0", 1)
        message = json.loads(line)
        event, about = message.get("method"), message.get("params", {})
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.errors.append(str(about))
        return message

    def open(self, address: str):
        """Open an address."""
        self.opened = address
        self.send("Page.navigate", url=address)

    def run(self, expression):
        """Return the value of an expression on the page; a promise is awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression, seconds=300):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def close(self):
        """End the browser."""
        self._session = None
        self.send("Browser.close")
        self._process.wait(30)
        os.close(self._to)
        os.close(self._from)
