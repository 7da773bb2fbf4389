"""The models that every contestant serves, made from the default model (SmolLM2-135M-Instruct, Q4_1).

"135m" is that model, unpacked and quantised again with llama-quantize, so that all contestants read the same weights.
"1b" has TinyLlama-1.1B's shape, random weights and the same vocabulary: large enough that no cache holds it.
"""
import subprocess
from pathlib import Path

from . import llamacpp, store

FOLDER = store.PEERS / "models"


def source():
    tool = store.HERE.parent / "default_model"
    return Path(subprocess.run([tool], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def random_1b(part):
    store.run("models", [store.venv("openvino"), "-I", store.HERE / "random_gguf.py", source(), part])


def gguf(model, kind):
    """The GGUF file of `model` ("135m" or "1b") with weights of `kind` (BF16, F16, Q8_0 or Q4_0)."""
    def quantize(part):
        origin = source() if model == "135m" else gguf("1b", "BF16")
        store.run("models", [llamacpp.install() / "llama-quantize", "--allow-requantize", origin, part, kind,
                             store.threads()])

    build = random_1b if (model, kind) == ("1b", "BF16") else quantize
    return store.make(FOLDER / f"{model}-{kind}.gguf", f"model {model} {kind}", build)
