#!/usr/bin/env python3
"""Fetches what the judges compare against: vocabularies with golden ids and real chat templates.

    assets.py FOLDER

They travel in the source distribution of llama-cpp-python 0.3.36 on PyPI, which pip downloads and this script
checks by hash; the folder then holds llama.cpp/models. Does nothing if it is there already.
"""
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "llama-cpp-python==0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
PREFIX = "vendor/llama.cpp/models/"


def main():
    folder = Path(sys.argv[1])
    if (folder / "complete").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                        "--no-binary", "llama-cpp-python", "-d", work, PACKAGE], check=True)
        archive = next(Path(work).glob("llama_cpp_python-*.tar.gz"))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != SHA256:
            sys.exit(f"{archive.name} has the SHA-256 {found}, expected {SHA256}")
        with tarfile.open(archive) as tar:
            for member in tar:
                at = member.name.find(PREFIX)
                if at < 0 or not member.isfile():
                    continue
                target = folder / "llama.cpp/models" / member.name[at + len(PREFIX):]
                if folder not in target.resolve().parents:
                    sys.exit(f"{member.name} leaves the folder")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(tar.extractfile(member).read())
    (folder / "complete").touch()


if __name__ == "__main__":
    main()
