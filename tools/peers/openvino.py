"""OpenVINO GenAI, which reads GGUF files; its package has no server, so openvino_server.py is one."""
from . import store

VERSION = "openvino-genai 2026.4.1.0 behind tools/peers/openvino_server.py"


def command(path, cell, port):
    # -I: the folder of the script, where this file is, must not hide the package of the same name.
    return [store.venv("openvino"), "-I", store.HERE / "openvino_server.py", path, port, "--threads", store.threads(),
            *(["--prefix-cache"] if cell.prefix else [])]
