"""What is measured: the workloads, the figure that counts in each, and the issue's targets."""
from dataclasses import dataclass, field

BITS = ["bf16", "int8", "int4"]


@dataclass(frozen=True)
class Cell:
    name: str
    model: str                      # "135m" or "1b"
    prefix: int                     # tokens that all prompts share; computed once before the clock starts
    prompt: int                     # distinct tokens of each prompt
    output: int
    concurrency: int
    requests: int
    seconds: int                    # of one run on two cores, about, with the slowest peer
    figure: str                     # a key of FIGURES
    targets: dict = field(default_factory=dict)     # by bits; see `judge` in table.py
    against: str = ""               # the peer to compare with; empty: the best one

    def short(self):
        """The same load for --quick: fewer requests and tokens, so its figures are not those of the full cell."""
        return Cell(**{**self.__dict__, "requests": max(2, self.concurrency), "output": min(self.output, 32),
                       "seconds": self.seconds // 3 + 1})


def first_token(run):
    return run["ttft_ms"]["p50"]


def evenness(run):
    return run["itl_ms"]["p99"] / max(run["itl_ms"]["p50"], 1e-3)


# figure -> (column title, higher is better, is the target a bound on the figure itself and not on the ratio, value)
FIGURES = {
    "output": ("output tok/s", True, False, lambda run: run["output_tokens_per_s"]),
    "total": ("total tok/s", True, False, lambda run: run["total_tokens_per_s"]),
    "ttft": ("TTFT p50 ms", False, False, first_token),
    "evenness": ("ITL p99÷p50", False, True, evenness),
    "start": ("start to first token s", False, False, lambda run: run["start_s"]),
}


def by_bits(*values):
    return dict(zip(BITS, values))


CELLS = {cell.name: cell for cell in [
    Cell("w1-1", "135m", 0, 128, 128, 1, 4, 15, "output", by_bits(1.5, 2, 2)),
    Cell("w1-8", "135m", 0, 128, 128, 8, 16, 25, "output", by_bits(1.4, 2.5, 2.5)),
    Cell("w1-32", "135m", 0, 128, 128, 32, 64, 85, "output", by_bits(1.4, 2, 2.2)),
    Cell("w1-64", "135m", 0, 128, 128, 64, 64, 85, "output", by_bits(1.4, 1.7, 2)),
    Cell("w2", "135m", 0, 1024, 32, 8, 16, 60, "total", by_bits(1.25, 1.5, 2.5)),
    Cell("w3", "135m", 1024, 32, 32, 16, 32, 80, "ttft", by_bits(.5, .5, .5)),
    Cell("s1-1", "1b", 0, 128, 32, 1, 2, 20, "output", by_bits(1.3, 1.6, 2.2)),
    Cell("s1-8", "1b", 0, 128, 32, 8, 8, 35, "output"),
    Cell("s1-32", "1b", 0, 128, 32, 32, 32, 110, "output", by_bits(1.3, 1.4, 1.4)),
    Cell("evenness", "135m", 0, 1024, 128, 8, 16, 100, "evenness", by_bits(3, 3, 3)),
    Cell("coldstart", "135m", 0, 128, 128, 32, 32, 50, "start", by_bits(1, 1, 1), against="llama.cpp"),
]}
QUICK = ["w1-1", "w1-8", "w1-32", "w2", "coldstart"]
