"""The cache that everything downloaded, built or converted lies in, and how it gets there.

A folder or file is made under another name and renamed when it is complete, so that an interrupted run leaves
nothing that looks finished. Downloads go through pip and are pinned by hash.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millrace"
PEERS = CACHE / "peers"
PIP = ["-m", "pip", "--disable-pip-version-check", "-q"]


class Failure(Exception):
    """What a user can do something about; printed without a traceback."""


def threads():
    return len(os.sched_getaffinity(0))


def run(log, command, **options):
    """Runs a slow command at low priority, its output in a log that a failure names."""
    PEERS.mkdir(parents=True, exist_ok=True)
    path = PEERS / f"{log}.log"
    with open(path, "a") as out:
        out.write(f"$ {' '.join(map(str, command))}\n")
        out.flush()
        status = subprocess.run(["nice", "-n", "10", *map(str, command)], stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, **options).returncode
    if status != 0:
        tail = "\n".join(path.read_text(errors="replace").splitlines()[-15:])
        raise Failure(f"`{' '.join(map(str, command))[:100]}` exited {status}; the end of {path}:\n{tail}")


def make(target, note, build):
    """The path `target`, which `build(temporary path)` makes if it is not there."""
    if not target.exists():
        print(f"==> {note}", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
        build(part)
        part.rename(target)
    return target


def venv(name, *options):
    """A Python environment with `<name>.txt`, whose every file is pinned by hash; returns its interpreter."""
    folder = PEERS / f"venv-{name}"
    done = folder / "complete"

    def build(part):
        shutil.rmtree(folder, ignore_errors=True)
        run(name, [sys.executable, "-m", "venv", folder])
        run(name, [folder / "bin/python", *PIP, "install", "--require-hashes", *options, "-r", HERE / f"{name}.txt"])
        part.touch()

    make(done, f"Python environment {name}", build)
    return folder / "bin/python"
