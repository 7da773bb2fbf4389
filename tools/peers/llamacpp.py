"""llama.cpp's server, built for this CPU from the sources that llama-cpp-python's source distribution carries."""
import tarfile

from . import store

VERSION = "llama-cpp-python 0.3.36 (llama.cpp 0c1e570)"
PACKAGE = "llama-cpp-python==0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
BUILD = store.PEERS / "llama.cpp-0.3.36"


def build(part):
    part.mkdir(parents=True)
    (part / "requirements.txt").write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    # Only the archive is wanted, but pip asks its build backend for metadata first.
    store.run("llama.cpp", [store.sys.executable, *store.PIP, "download", "--no-deps", "--require-hashes", "--no-binary",
                            "llama-cpp-python", "--dest", part, "-r", part / "requirements.txt"])
    with tarfile.open(next(part.glob("*.tar.gz"))) as archive:
        archive.extractall(part, filter="data")
    source = next(part.glob("*/vendor/llama.cpp"))
    store.run("llama.cpp", ["cmake", "-S", source, "-B", part / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                            "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
                            "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_UI=OFF", "-DBUILD_SHARED_LIBS=OFF"])
    store.run("llama.cpp", ["cmake", "--build", part / "build", "-j", str(store.threads()), "--target", "llama-server",
                            "llama-quantize"])
    store.shutil.copytree(part / "build/bin", part / "bin")
    for leftover in (part / "build", source.parents[1]):
        store.shutil.rmtree(leftover)


def install():
    return store.make(BUILD, "llama.cpp: build llama-server (10 minutes or more on two cores)", build) / "bin"


def command(path, cell, port):
    """One slot and its own KV for each request that runs at once: a unified KV cache was slower in every cell."""
    context = (cell.prefix + cell.prompt + cell.output + 127) // 64 * 64
    threads = store.threads()
    return [install() / "llama-server", "-m", path, "--alias", "m", "--host", "127.0.0.1", "--port", port, "-t", threads,
            "-tb", threads, "-np", cell.concurrency, "-c", cell.concurrency * context, "-fa", "on", "--no-kv-unified",
            "--cache-ram", "0"]
