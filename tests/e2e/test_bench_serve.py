"""`millrace bench serve` against the real server: its counts are the server's, its files are whole."""
import json
import re
import signal
import subprocess
import time

from conftest import BINARY


def bench(*flags, code=0, timeout=120):
    """Runs the load generator; returns what it printed on both streams."""
    done = subprocess.run([BINARY, "bench", "serve", *map(str, flags)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout)
    assert done.returncode == code, done.stdout
    return done.stdout


def counters(server):
    return {name: server.metric(f"vllm:{name}_total")
            for name in ("prompt_tokens", "generation_tokens", "request_success")}


def grown(server, before):
    server.wait_idle()
    return {name: value - before[name] for name, value in counters(server).items()}


def test_counts_equal_those_of_the_server(server, tmp_path):
    before = counters(server)
    file = tmp_path / "result.json"
    text = bench("--base-url", server.url, "--num-prompts", 12, "--max-concurrency", 4,
                 "--random-input-len", 40, "--random-output-len", 24, "--goodput", "ttft:60000", "tpot:60000",
                 "--percentiles", "50,99.9", "--label", "twelve", "--save-result", file)
    assert "12 of 12 requests" in text and "twelve" in text
    result = json.loads(file.read_text())
    assert grown(server, before) == {"prompt_tokens": 480, "generation_tokens": 288, "request_success": 12}
    assert (result["completed"], result["failed"], result["errors"], result["short"]) == (12, 0, {}, 0)
    assert (result["prompt_tokens"], result["output_tokens"]) == (480, 288)
    assert result["peak_concurrency"] == 4
    assert abs(result["output_tokens_per_s"] * result["duration_s"] - 288) < 1
    assert result["goodput_request_per_s"] == result["request_per_s"]
    assert result["prefill_tokens_per_s"] > 0
    assert result["workload"]["random_input_len"] == 40
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        spread = result[name]
        assert 0 < spread["min"] <= spread["p50"] <= spread["p99.9"] <= spread["max"]
    assert len(result["requests"]) == 12
    for request in result["requests"]:
        assert request["tokens"] == 24
        assert abs(request["ttft_ms"] + sum(request["itl_ms"]) - request["e2e_ms"]) < 0.1


def test_chat_prefix_and_open_loop(server, tmp_path):
    file = tmp_path / "result.json"
    before = counters(server)
    bench("--base-url", server.url, "--endpoint", "/v1/chat/completions", "--num-prompts", 6, "--request-rate", 50,
          "--random-prefix-len", 200, "--warm-prefix", "--num-warmups", 1, "--random-input-len", 10,
          "--random-output-len", 8, "--save-result", file)
    result = json.loads(file.read_text())
    assert result["completed"] == 6 and result["short"] == 0
    # All but the last part of the prefix lies in whole blocks of the cache.
    assert result["cached_prompt_tokens"] > 6 * 150
    assert result["prefill_tokens_per_s"] is None
    starts = [request["start_s"] for request in result["requests"]]
    assert starts == sorted(starts) and starts[0] < 0.05 < starts[-1]
    more = grown(server, before)
    assert more["request_success"] == 8
    assert more["generation_tokens"] == 6 * 8 + 8 + 1


def test_trace(server, tmp_path):
    trace = tmp_path / "trace.jsonl"
    rows = [{"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 5, "temperature": 0},
            {"arrival_s": 0.2, "prompt": "Once upon", "max_tokens": 6, "ignore_eos": True, "temperature": 0}]
    rows[0]["arrival_s"] = 0
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = tmp_path / "result.json"
    bench("--base-url", server.url, "--trace", trace, "--save-result", file)
    first, second = json.loads(file.read_text())["requests"]
    assert first["start_s"] < 0.1 and second["start_s"] >= 0.2
    assert second["tokens"] == 6


def test_report_and_comparison(server, tmp_path):
    files = []
    for concurrency in (1, 4):
        files.append(tmp_path / f"at{concurrency}.json")
        bench("--base-url", server.url, "--num-prompts", 4, "--max-concurrency", concurrency, "--random-input-len", 16,
              "--random-output-len", 16, "--save-result", files[-1], "--html", tmp_path / "one.html")
    text = bench("--compare", *files, "--html", tmp_path / "both.html")
    header, *lines = text.splitlines()
    assert header.split() == ["at1", "at4"]
    rate = next(line for line in lines if line.startswith("output tok/s"))
    base, other, ratio = re.fullmatch(r"output tok/s +(\S+) +(\S+) x(\S+)", rate).groups()
    assert abs(float(other) / float(base) - float(ratio)) < 0.02
    for name in ("one.html", "both.html"):
        page = (tmp_path / name).read_text()
        assert page.count("<svg ") == 4
        assert not re.search(r"(src|href)\s*=|url\(|@import|<script|<link", page)


def test_failures_decide_the_exit_code(server, tmp_path):
    file = tmp_path / "result.json"
    few = ("--base-url", server.url, "--num-prompts", 3, "--random-input-len", 8, "--random-output-len", 4)
    text = bench(*few, "--model", "absent", "--save-result", file, code=1)
    assert "error http_404: 3 requests" in text and "absent" in text
    result = json.loads(file.read_text())
    assert result["errors"] == {"http_404": 3} and result["output_tokens_per_s"] == 0
    assert "it must be http://" in bench("--base-url", "https://localhost", code=1)
    assert "legal are" in bench(*few, "--goodput", "fast:1", code=1)
    assert "cannot be written" in bench(*few, "--save-result", tmp_path / "absent" / "x.json", code=1)
    assert "failed (connect)" in bench("--base-url", "http://127.0.0.1:9", code=1)


def test_an_interrupt_prints_what_was_measured_and_frees_the_server(server):
    process = subprocess.Popen([BINARY, "bench", "serve", "--base-url", server.url, "--num-prompts", "500",
                                "--max-concurrency", "2", "--random-input-len", "8", "--random-output-len", "8"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    done = server.metric("vllm:request_success_total")
    deadline = time.monotonic() + 30
    while server.metric("vllm:request_success_total") < done + 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "of 500 requests" in text and "interrupted:" in text and "TTFT" in text
    server.wait_idle()
