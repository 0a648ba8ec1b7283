"""Control headless Chromium by the DevTools protocol over a pair of pipes."""

import json
import os
import select
import shutil
import subprocess
import time

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 120.0

# In continuous integration it is installed, and a test that cannot start it fails.
needed = pytest.mark.skipif(
    PROGRAM is None and "CI" not in os.environ,
    reason="NO BROWSER: Chromium is not installed, so nothing is tested in one",
)

_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-extensions", "--disable-domain-reliability",
    "--disable-features=OptimizationHints,MediaRouter,Translate", "--metrics-recording-only",
    "--no-pings", "--mute-audio", "--hide-scrollbars", "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """A Chromium process with one page.

    Attributes
    ----------
    problems : errors of scripts, refused loads and messages of the console, as they come
    dialogs : texts of alerts, which no page here should ever show
    """

    def __init__(self, profile):
        from_us, self._out = os.pipe()
        self._in, to_us = os.pipe()

        def place_pipes():
            # Chromium reads requests from 3, and answers on 4.
            high = [os.dup(from_us), os.dup(to_us)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [PROGRAM, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4, from_us, to_us),
            preexec_fn=place_pipes,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self._waiting, self._number = b"", 0
        self.problems, self.dialogs = [], []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method, **parameters):
        return self._call(method, parameters, self._session)

    def _call(self, method, parameters, session=None):
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._waiting:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._in], [], [], max(0.0, left))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise EOFError("Chromium has ended")
            self._waiting += part
        line, _, self._waiting = self._waiting.partition(b"\0")
        message = json.loads(line)
        self._note(message)
        return message

    def _note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(parameters["exceptionDetails"].get("exception", parameters))
        elif method == "Log.entryAdded":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])
            self._number += 1
            closing = {"id": self._number, "method": "Page.handleJavaScriptDialog",
                       "params": {"accept": True}, "sessionId": self._session}  # fmt: skip
            os.write(self._out, json.dumps(closing).encode() + b"\0")

    def screen(self, width, height=800):
        """Emulate a screen of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def go(self, url):
        """Open a page that is not open yet."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait_for(f"location.href.startsWith({json.dumps(url)})")
        self.wait_for("document.readyState === 'complete'")

    def value(self, expression):
        """Evaluate an expression in the page; waits for promises."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression):
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                if self.value(f"Boolean({expression})"):
                    return
            except AssertionError as error:  # asked while another page takes the place of this
                if "navigated" not in str(error):
                    raise
            time.sleep(0.02)
        raise TimeoutError(f"never came true: {expression}")

    def key(self, key, code=None, text=None, number=0):
        """Press and release a key."""
        common = {"key": key, "code": code or key, "windowsVirtualKeyCode": number}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {})
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def choose_file(self, selector, path):
        """Choose a file, as with the browser's dialog."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])
