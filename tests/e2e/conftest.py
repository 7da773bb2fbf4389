"""The real binary with the real default model, driven by real clients over loopback.

MILLRACE_BINARY is the binary, MILLRACE_TEST_MODEL the GGUF file; tools/test sets both.
"""
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import httpx
import openai
import pytest

BINARY = os.environ.get("MILLRACE_BINARY", "build/release/millrace")
MODEL = os.environ.get("MILLRACE_TEST_MODEL", "")


class Server:
    """One `millrace serve` process on a free port."""

    def __init__(self, *flags, model=MODEL, wait=True):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.started = time.monotonic()
        self.process = subprocess.Popen([BINARY, "serve", model, "--port", "0", *map(str, flags)],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        self.port = self._wait_for_port()
        self.url = f"http://127.0.0.1:{self.port}"
        if wait:
            self.wait_ready()

    def text(self):
        return Path(self.log.name).read_text(errors="replace")

    def _wait_for_port(self):
        """The port that the kernel chose, from the process's own listening sockets."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.text()}")
            port = listening_port(self.process.pid)
            if port:
                return port
            time.sleep(0.01)
        raise RuntimeError("the server opened no port:\n" + self.text())

    def wait_ready(self, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(self.url + "/readyz").status_code == 200:
                    return
            time.sleep(0.02)
        raise RuntimeError("the server was not ready:\n" + self.text())

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", **{"api_key": "none", "max_retries": 0, "timeout": 120,
                                                           **options})

    def async_client(self, **options):
        return openai.AsyncOpenAI(base_url=self.url + "/v1", **{"api_key": "none", "max_retries": 0,
                                                                "timeout": 120, **options})

    def metrics(self):
        """Sample lines of /metrics as {name{labels}: value}."""
        text = httpx.get(self.url + "/metrics").text
        return {m[1]: float(m[2]) for m in re.finditer(r"^([a-z_:]+(?:\{[^}]*\})?) (\S+)$", text, re.M)}

    def metric(self, name):
        return sum(value for key, value in self.metrics().items() if key.split("{")[0] == name)

    def wait_idle(self, seconds=10):
        """Waits until nothing runs or waits and all blocks are free; fails if that does not come."""
        deadline = time.monotonic() + seconds
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        while True:
            left = {name: self.metric(name) for name in names}
            if not any(left.values()):
                return
            assert time.monotonic() < deadline, f"still in use: {left}"
            time.sleep(0.05)

    def rss(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def listening_port(pid):
    """A TCP port that the process listens on, or None."""
    inodes = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    except OSError:
        return None
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                return int(fields[1].split(":")[1], 16)
    return None


@pytest.fixture(scope="session", autouse=True)
def model_is_there():
    assert MODEL and Path(MODEL).is_file(), "MILLRACE_TEST_MODEL does not name the default model's file"


@pytest.fixture(scope="module")
def server():
    running = Server()
    yield running
    assert running.stop() == 0


@pytest.fixture
def start():
    """Starts servers with flags of a test's own; they end with the test."""
    servers = []

    def make(*flags, **options):
        servers.append(Server(*flags, **options))
        return servers[-1]

    yield make
    for running in servers:
        running.stop(signal.SIGKILL)
