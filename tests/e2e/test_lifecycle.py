"""Start, health, drain, kill, memory, metrics and the terminal commands of the real binary."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import tomllib
from pathlib import Path

import httpx
import pytest

from conftest import BINARY, MODEL, Server

HELLO = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 8, "temperature": 0}


def first_token_seconds():
    """Process start to the first streamed token, in seconds."""
    server = Server(wait=False)
    try:
        while True:
            with httpx.stream("POST", server.url + "/v1/chat/completions", json={**HELLO, "stream": True}) as answer:
                if answer.status_code == 200:
                    for line in answer.iter_lines():
                        if '"content":"' in line and '"content":""' not in line:
                            return time.monotonic() - server.started
            time.sleep(0.005)
    finally:
        server.stop(signal.SIGKILL)


def test_starts_within_a_second_and_idles_small():
    first_token_seconds()  # the page cache is warm after this
    seconds = sorted(first_token_seconds() for _ in range(3))
    print("start to first token, seconds:", [round(s, 3) for s in seconds])
    assert seconds[0] <= 1.0
    server = Server()
    time.sleep(0.5)
    ratio = server.rss() / os.path.getsize(MODEL)
    print(f"idle resident memory: {server.rss() / 2**20:.0f} MiB, {ratio:.2f} of the file")
    server.stop()
    assert ratio <= 1.6


def test_health_before_and_after(start):
    server = start()
    for path in ("/health", "/livez", "/readyz", "/ping"):
        assert httpx.get(server.url + path).status_code == 200
    assert "version" in httpx.get(server.url + "/version").json()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0


def test_drain_finishes_running_streams(start):
    server = start("--drain-delay", "0.5", "--shutdown-timeout", "20")
    lines = []

    def read():
        body = {**HELLO, "max_tokens": 100, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", server.url + "/v1/chat/completions", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                lines.append(line)

    reader = threading.Thread(target=read)
    reader.start()
    while not lines:
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert httpx.get(server.url + "/readyz").status_code == 503
    assert httpx.get(server.url + "/livez").status_code == 200
    reader.join()
    assert "data: [DONE]" in lines, lines[-3:]
    assert server.process.wait(20) == 0


def test_drain_ends_what_takes_too_long(start):
    server = start("--drain-delay", "0", "--shutdown-timeout", "0.5")
    body = {**HELLO, "max_tokens": 7000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.url + "/v1/chat/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        for _ in range(3):
            next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = "\n".join(lines)
    assert '"error"' in rest and "[DONE]" not in rest
    assert server.process.wait(10) == 0


def test_second_signal_ends_at_once(start):
    server = start("--drain-delay", "30")
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(3)


def test_metrics_are_clean(server):
    httpx.post(server.url + "/v1/chat/completions", json=HELLO)
    text = httpx.get(server.url + "/metrics").text
    for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:time_to_first_token_seconds_bucket",
                 "vllm:request_success_total", "vllm:prompt_tokens_total", "millrace_build_info"):
        assert re.search(rf"^{name}[{{ ]", text, re.M), name
    promtool = shutil.which("promtool")
    assert promtool, "promtool (Debian package prometheus) is missing"
    own, keep = [], True
    for line in text.splitlines():
        if line.startswith("# HELP"):
            keep = ":" not in line.split()[2]
        if keep:
            own.append(line)
    lint = subprocess.run([promtool, "check", "metrics"], input="\n".join(own) + "\n", text=True, capture_output=True)
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_request_id_and_log(server):
    answer = httpx.post(server.url + "/v1/chat/completions", headers={"X-Request-Id": "mine-1"},
                        json={**HELLO, "messages": [{"role": "user", "content": "zanzibar secret"}]})
    assert answer.headers["x-request-id"] == "mine-1"
    time.sleep(0.2)
    lines = [json.loads(l) for l in server.text().splitlines() if "mine-1" in l]
    assert lines, server.text()[-2000:]
    assert "zanzibar" not in server.text()


def test_memory_stays_flat_under_mixed_load(server):
    """A bounded soak: after warm-up, resident memory does not grow with requests."""
    client = httpx.Client(base_url=server.url, timeout=60)

    def burst(count):
        for i in range(count):
            body = {**HELLO, "seed": i, "temperature": 1.0, "stream": i % 2 == 0}
            if i % 7 == 3:
                with socket.create_connection(("127.0.0.1", server.port)) as gone:
                    content = json.dumps({**body, "max_tokens": 500, "stream": True}).encode()
                    gone.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                 b"Content-Length: %d\r\n\r\n" % len(content) + content)
                    gone.recv(100)
            elif i % 7 == 5:
                assert client.post("/v1/chat/completions", json={**body, "temperature": -1}).status_code == 400
            else:
                assert client.post("/v1/chat/completions", json=body).status_code == 200

    seconds = float(os.environ.get("MILLRACE_SOAK_SECONDS", "12"))
    burst(60)
    server.wait_idle()
    before, begin, count = server.rss(), time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        burst(30)
        count += 30
    server.wait_idle()
    grown = server.rss() - before
    print(f"{count} requests, {grown / 1024:.0f} KiB grown")
    assert grown < (1 << 20) + 256 * count


@pytest.mark.parametrize("arguments,words", [
    (["serve"], ["MODEL"]), (["serve", "/nowhere/model.gguf"], ["/nowhere/model.gguf"]),
    (["serve", MODEL, "--port", "999999"], ["--port"]), (["serve", MODEL, "--no-such-flag"], ["--no-such-flag"]),
    (["serve", MODEL, "--kv-cache-dtype", "int3"], ["kv-cache-dtype"]), (["frobnicate"], ["frobnicate"]),
    (["serve", __file__], ["test_lifecycle.py"]),
])
def test_wrong_use_ends_with_one_sentence(arguments, words):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=20)
    assert done.returncode not in (0, -signal.SIGSEGV, -signal.SIGABRT)
    for word in words:
        assert word in done.stderr + done.stdout
    assert len((done.stderr + done.stdout).strip().splitlines()) <= 4, done.stderr


def test_inspect_plan_and_chat():
    inspect = subprocess.run([BINARY, "inspect", MODEL], capture_output=True, text=True, timeout=20)
    assert inspect.returncode == 0 and "LlamaForCausalLM" in inspect.stdout and "Q4_1" in inspect.stdout
    plan = subprocess.run([BINARY, "plan", MODEL, "--json"], capture_output=True, text=True, timeout=20)
    assert plan.returncode == 0 and json.loads(plan.stdout)
    chat = subprocess.run([BINARY, "chat", MODEL, "--prompt", "What is two plus two?", "--max-tokens", "32"], capture_output=True, text=True,
                          timeout=60)
    assert chat.returncode == 0 and len(chat.stdout.strip()) > 1


def test_shipped_settings_are_the_defaults():
    config = Path(__file__).parents[2] / "deploy/millrace.toml"
    shipped = subprocess.run([BINARY, "serve", "--config", str(config), "--print-config"], capture_output=True, text=True)
    plain = subprocess.run([BINARY, "serve", "--print-config"], capture_output=True, text=True)
    assert shipped.returncode == 0, shipped.stderr

    defaults = tomllib.loads(plain.stdout)
    for key, value in tomllib.loads(config.read_text()).items():
        if key in defaults and key != "max-model-len":  # whose "auto" is shown as 0
            assert defaults[key] == value, key
    assert len(defaults) > 20
