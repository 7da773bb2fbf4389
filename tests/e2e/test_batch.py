"""The batch command: every row answered exactly once through kill -9, with the same bytes."""
import json
import random
import signal
import subprocess
import time

from conftest import BINARY, MODEL


def row(i, **body):
    return {"custom_id": f"row-{i}", "method": "POST", "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": f"Say something about the number {i}."}],
                     "max_tokens": 8 + i % 16, "temperature": 0.8 if i % 2 else 0, **body}}


def run(source, target, *flags, **options):
    return subprocess.run([BINARY, "batch", MODEL, "-i", source, "-o", target, *flags], capture_output=True, text=True,
                          timeout=300, **options)


def test_killed_three_times_answers_every_row_once(tmp_path):
    source, undisturbed, killed = tmp_path / "in.jsonl", tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    source.write_text("".join(json.dumps(row(i)) + "\n" for i in range(300)))
    begin = time.monotonic()
    done = run(source, undisturbed)
    seconds = time.monotonic() - begin
    assert done.returncode == 0, done.stderr
    random.seed(11)
    for _ in range(3):
        process = subprocess.Popen([BINARY, "batch", MODEL, "-i", source, "-o", killed], stderr=subprocess.PIPE)
        time.sleep(random.uniform(0.1, 0.3) * seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not killed.exists()
    done = run(source, killed)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in killed.read_text().splitlines()]
    assert [a["custom_id"] for a in answers] == [f"row-{i}" for i in range(300)]
    assert all(a["response"]["status_code"] == 200 and a["error"] is None for a in answers)
    assert killed.read_bytes() == undisturbed.read_bytes()


def test_bad_rows_are_answered_with_their_error(tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    good = json.dumps(row(1))
    lines = [good, "", "null", "[1,2]", '{"body":"x"}', "{broken", json.dumps({**row(2), "url": "/v1/unknown"}),
             json.dumps({**row(3), "method": "GET"}), json.dumps(row(4, stream=True)), json.dumps(row(5, n=2)),
             json.dumps(row(6, temperature=-1))]
    source.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n" + b'{"custom_id":"\xff"}')
    done = run(source, target)
    assert done.returncode == 1, done.stderr
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(answers) == 11
    good = [a for a in answers if a["response"] and a["response"]["status_code"] == 200]
    assert [a["custom_id"] for a in good] == ["row-1", "row-5"]
    assert len(good[1]["response"]["body"]["choices"]) == 2


def test_refusals(tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(row(1)) + "\n" + json.dumps(row(1)) + "\n")
    twice = run(source, target)
    assert twice.returncode == 2 and "1" in twice.stderr and "2" in twice.stderr
    source.write_text(json.dumps(row(1)) + "\n")
    assert run(source, source).returncode == 2
    assert run(tmp_path / "none.jsonl", target).returncode == 2
