"""The arithmetic of tools/compare_peers: medians, the best peer, ratios, targets, failures."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from peers import table  # noqa: E402
from peers.cells import BITS, CELLS, FIGURES  # noqa: E402


def run(contestant, number, value, cell="w1-8", bits="int8", **more):
    return {"cell": cell, "bits": bits, "contestant": contestant, "round": number, "output_tokens_per_s": value,
            "total_tokens_per_s": value, "prefill_tokens_per_s": value, "ttft_ms": {"p50": value, "p99": value},
            "itl_ms": {"p50": 2, "p99": value}, "start_s": value, "idle_rss_mib": 1, "peak_rss_mib": 2,
            "other_cpu_percent": 0, **more}


def failed(contestant, number):
    return {"cell": "w1-8", "bits": "int8", "contestant": contestant, "round": number, "error": "it | broke"}


def test_ratio_is_between_medians_and_each_round_has_its_own():
    runs = [run("Millrace", i, v) for i, v in enumerate([200, 300, 260])]
    runs += [run("slow", i, 10) for i in range(3)] + [run("fast", i, v) for i, v in enumerate([100, 90, 130])]
    row, = table.summarize(runs)
    assert (row["best_peer"], row["ratio"], row["met"]) == ("fast", 2.6, True)
    assert row["ratio_by_round"] == pytest.approx([2, 10 / 3, 2])
    assert "260 [200–300]" in table.markdown(table.summary_table([row]))


@pytest.mark.parametrize("cell, ours, theirs, met", [
    ("w3", 50, 100, True), ("w3", 51, 100, False),                  # lower is better
    ("evenness", 6, 4, True), ("evenness", 6.1, 100, False),        # a bound on the figure itself
    ("coldstart", 1, 2, None)])                                     # only llama.cpp counts
def test_targets(cell, ours, theirs, met):
    row, = table.summarize([run("Millrace", 1, ours, cell), run("other", 1, theirs, cell)])
    assert row["met"] is met


def test_a_failure_stays_in_its_row():
    runs = [failed("broken", 1), run("half", 1, 5), failed("half", 2), run("Millrace", 1, 20), run("Millrace w8a8", 1, 30)]
    assert [(r["setting"], r["ratio"]) for r in table.summarize(runs)] == [("Millrace", 4), ("Millrace w8a8", 6)]
    text = table.markdown(table.detail_table(runs))
    assert "failed: it / broke" in text and "1 of 2 failed" in text
    assert {len(line) for line in table.detail_table(runs)} == {11}


def test_only_peers_or_nothing():
    assert table.summarize([run("llama.cpp", 1, 3)]) == []
    assert table.summarize([run("Millrace", 1, 3)])[0]["ratio"] is None
    assert table.summarize([]) == [] and table.machine_line([]) == ""


def test_cells_name_known_figures_and_bits():
    for name, cell in CELLS.items():
        assert cell.name == name and cell.figure in FIGURES and set(cell.targets) <= set(BITS)
        assert cell.short().concurrency == cell.concurrency <= cell.short().requests
