"""A contestant's server as a process: started, waited for, measured from /proc, and ended whatever happens."""
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from .store import Failure, threads

TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def first_token(port):
    """Asks for two tokens; returns the time at which the first arrived, or None if the server is not ready yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"model": "m", "prompt": list(range(100, 116)), "max_tokens": 2, "temperature": 0, "stream": True,
            "ignore_eos": True}
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status == 200:
            while line := answer.readline():
                if line.startswith(b"data: {"):
                    at = time.monotonic()
                    answer.read()
                    return at
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return None


class Server:
    """A running server: its process group is one session, so that /proc tells what belongs to it."""

    def __init__(self, process):
        self.process, self.start_s = process, None

    def stats(self):
        """The `stat` fields (from the state on) of each of its processes."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid:          # session
                    yield path.parent, fields

    def cpu_s(self):
        return sum(int(f[11]) + int(f[12]) for _, f in self.stats()) / TICKS

    def memory_mib(self, key):
        """VmRSS (now) or VmHWM (its highest so far), summed over the processes."""
        total = 0
        for folder, _ in self.stats():
            with contextlib.suppress(OSError):
                total += sum(int(line.split()[1]) for line in (folder / "status").read_text().splitlines()
                             if line.startswith(f"{key}:"))
        return total / 1024


@contextlib.contextmanager
def serving(command, port, log, patience_s):
    """A Server that has answered its first request; it is killed on every way out of the block."""
    with open(log, "w") as out:
        begin = time.monotonic()
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    try:
        server = Server(process)
        while not (at := first_token(port)):
            if process.poll() is not None:
                tail = Path(log).read_text(errors="replace").strip().splitlines()[-1:]
                raise Failure(f"the server exited {process.returncode}: {''.join(tail)[:150]} (see {log})")
            if time.monotonic() - begin > patience_s:
                raise Failure(f"no token within {patience_s} s (see {log})")
            time.sleep(0.01)
        server.start_s = at - begin
        yield server
    finally:
        try:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        finally:                                        # what is left of it, also when another Ctrl-C came meanwhile
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def machine_cpu_s():
    """CPU seconds that all CPUs spent on anything, and those that the hypervisor kept back."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS, steal / TICKS


def wait_until_quiet(limit_s):
    """Waits, at most so long, for a second in which other programs leave nine tenths of the CPUs alone."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        before = machine_cpu_s()[0]
        time.sleep(1)
        if machine_cpu_s()[0] - before < 0.1 * threads():
            return
