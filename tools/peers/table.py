"""From measured runs to rows, text and Markdown. Pure: no processes, no files.

A run is {"cell", "bits", "contestant", "round"} and the load generator's figures, or {…, "error"}.
"""
from statistics import median

from .cells import BITS, CELLS, FIGURES

OURS = "Millrace"


def place(cell, bits):
    """Where a row stands in a table."""
    return list(CELLS).index(cell), BITS.index(bits)


def spread(values, digits):
    text = [f"{v:.{digits}f}" for v in (median(values), min(values), max(values))]
    return text[0] if len(values) == 1 else f"{text[0]} [{text[1]}–{text[2]}]"


def digits_of(value):
    return 2 if value < 10 else 1 if value < 100 else 0


def judge(cell, bits, value, ratio):
    """(the target as text, whether it was met or None if there is none or nothing to compare with)."""
    _, higher, absolute, _ = FIGURES[cell.figure]
    if bits not in cell.targets:
        return "–", None
    target, measured = cell.targets[bits], value if absolute else ratio
    text = f"{'≥' if higher else '≤'} {target}{'' if absolute else '×'}"
    if measured is None:
        return text, None
    return text, measured >= target if higher else measured <= target


def summarize(runs):
    """One row for each (cell, bits, setting of Millrace): its figure, the best peer's, their ratio, the target."""
    rows = []
    for cell, bits in sorted({(r["cell"], r["bits"]) for r in runs}, key=lambda key: place(*key)):
        cell = CELLS[cell]
        title, higher, _, figure = FIGURES[cell.figure]
        values, others = {}, {}                        # contestant -> {round: figure}, and the most of other CPU
        for run in runs:
            if (run["cell"], run["bits"]) == (cell.name, bits) and "error" not in run:
                name = run["contestant"]
                values.setdefault(name, {})[run["round"]] = figure(run)
                others[name] = max(others.get(name, 0), run["other_cpu_percent"])
        peers = {name: rounds for name, rounds in values.items()
                 if not name.startswith(OURS) and cell.against in ("", name)}
        best = (max if higher else min)(peers, key=lambda name: median(peers[name].values()), default=None)
        for name, ours in values.items():
            if not name.startswith(OURS):
                continue
            mine = median(ours.values())
            ratio = mine / median(peers[best].values()) if best else None
            paired = [ours[r] / peers[best][r] for r in ours if r in peers.get(best, {})]
            target, met = judge(cell, bits, mine, ratio)
            rows.append({"cell": cell.name, "bits": bits, "figure": title, "setting": name, "value": list(ours.values()),
                         "best_peer": best, "peer_value": list(peers[best].values()) if best else [], "ratio": ratio,
                         "ratio_by_round": paired, "target": target, "met": met,
                         "other_cpu_percent": max(others[name], others.get(best, 0))})
    return rows


def summary_table(rows):
    head = ["cell", "bits", "figure", "setting", "Millrace", "best peer", "its figure", "ratio [by round]", "target", "",
            "other CPU %"]
    lines = [head]
    for row in rows:
        digits = digits_of(median(row["value"]))
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}×"
        if len(row["ratio_by_round"]) > 1:
            ratio += f" [{min(row['ratio_by_round']):.2f}–{max(row['ratio_by_round']):.2f}]"
        lines.append([row["cell"], row["bits"], row["figure"], row["setting"], spread(row["value"], digits),
                      row["best_peer"] or "–", spread(row["peer_value"], digits) if row["peer_value"] else "–", ratio,
                      row["target"], {True: "met", False: "missed", None: "–"}[row["met"]],
                      f"{row['other_cpu_percent']:.0f}"])
    return lines


def detail_table(runs):
    """Every contestant of every cell; medians over its rounds, the cell's own figure with its spread."""
    lines = [["cell", "bits", "contestant", "figure", "output tok/s", "prefill tok/s", "TTFT p50 / p99 ms",
              "ITL p50 / p99 ms", "start s", "idle / peak RSS MiB", "other CPU %"]]
    groups = {}
    for run in runs:
        groups.setdefault((run["cell"], run["bits"], run["contestant"]), []).append(run)
    for (name, bits, contestant), group in sorted(groups.items(), key=lambda item: place(*item[0][:2])):
        done, figure = [r for r in group if "error" not in r], FIGURES[CELLS[name].figure][3]
        if not done:
            lines.append([name, bits, contestant, f"failed: {group[0]['error']}", *["–"] * 7])
            continue

        def mid(get, digits=0):
            return f"{median(get(r) for r in done):.{digits}f}"

        own = [figure(r) for r in done]
        lost = f", {len(group) - len(done)} of {len(group)} failed" if len(done) < len(group) else ""
        lines.append([name, bits, contestant, spread(own, digits_of(median(own))) + lost,
                      mid(lambda r: r["output_tokens_per_s"], 1), mid(lambda r: r["prefill_tokens_per_s"]),
                      f"{mid(lambda r: r['ttft_ms']['p50'])} / {mid(lambda r: r['ttft_ms']['p99'])}",
                      f"{mid(lambda r: r['itl_ms']['p50'], 1)} / {mid(lambda r: r['itl_ms']['p99'], 1)}",
                      mid(lambda r: r["start_s"], 2),
                      f"{mid(lambda r: r['idle_rss_mib'])} / {mid(lambda r: r['peak_rss_mib'])}",
                      mid(lambda r: r["other_cpu_percent"])])
    return lines


def machine_line(runs):
    """The machine's limits as measured before each run: when they moved, so did everything else."""
    peaks = [r["machine"] for r in runs if r.get("machine")]
    return "; ".join(f"{name} {spread([p[name] for p in peaks if name in p], 0)}"
                     for name in (peaks[0] if peaks else {}) if isinstance(peaks[0][name], (int, float)))


def text(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(f"{v:{w}}" for v, w in zip(line, widths)).rstrip() for line in lines)


def markdown(lines):
    head, *rest = ["| " + " | ".join(v.replace("|", "/").replace("\n", " ") for v in line) + " |" for line in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rest])
