"""House rules as a test: the include table of the architecture, file sizes, forbidden words, dead tests.

The table below is normative: a folder may include only itself and what it lists.
"""
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# folder -> folders (or single headers) whose headers it may include, besides its own
ALLOWED = {
    "kernels/core": [],
    "kernels/plan": ["kernels/core"],
    "kernels/comm": ["kernels/core"],
    "kernels/cpu": ["kernels/core", "kernels/plan", "kernels/params.h", "kernels/ops.h"],
    "kernels/cuda": ["kernels/core", "kernels/plan", "kernels/params.h", "kernels/ops.h"],
    "kernels": ["kernels/core", "kernels/plan", "kernels/comm", "kernels/cpu", "kernels/cuda"],
    "models": ["kernels/core", "kernels/ops.h"],
    "engine/base": [],
    "engine/cache": ["engine/base"],
    "engine/text": ["engine/base"],
    "engine/sched": ["engine/base", "engine/cache", "engine/request.h", "engine/exec/executor.h"],
    "engine/load": ["engine/base", "engine/text", "models", "kernels/core"],
    "engine/sample": ["engine/base", "engine/request.h", "kernels/core", "kernels/ops.h"],
    "engine/exec": ["engine/base", "engine/request.h", "engine/sample", "models", "kernels/core",
                    "kernels/ops.h"],
    "engine/client": ["engine/base", "engine/request.h"],
    "engine": ["engine/base", "engine/cache", "engine/sched", "engine/exec", "engine/client"],
    "server/net": ["engine/base"],
    "server/api": ["engine/base", "engine/text", "engine/request.h"],
    "server/bench": ["engine/base"],
    "server/app": ["server/net", "server/api", "server/bench", "engine", "engine/base", "engine/client",
                   "engine/exec", "engine/text", "engine/load", "models", "kernels/core", "kernels/ops.h",
                   "kernels/peaks.h"],
}
MAX_FILE_LINES = 700
MAX_LINE = 100


def sources(*suffixes):
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return [ROOT / f for f in files if f.endswith(suffixes) and (ROOT / f).is_file()]


def cpp_files():
    return [f for f in sources(".h", ".cc", ".cu", ".cuh")]


def folder_of(path):
    return str(path.parent.relative_to(ROOT))


@pytest.mark.parametrize("path", [f for f in cpp_files() if folder_of(f).split("/")[0] != "tests"],
                         ids=lambda p: str(p.relative_to(ROOT)))
def test_includes_follow_the_table(path):
    folder = folder_of(path)
    assert folder in ALLOWED, f"{folder} is not in the include table"
    for line in path.read_text().splitlines():
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        included = match.group(1)
        ours = included.split("/")[0] in ("kernels", "models", "engine", "server", "proto")
        if not ours or included.endswith(".pb.h"):
            continue
        target = str(Path(included).parent)
        assert (ROOT / included).exists(), f"{included} does not exist"
        assert target == folder or target in ALLOWED[folder] or included in ALLOWED[folder], (
            f"{path.relative_to(ROOT)} may not include {included}")


def test_files_and_lines_are_short():
    long = [f"{f.relative_to(ROOT)}: {n} lines" for f in cpp_files()
            if (n := len(f.read_text().splitlines())) > MAX_FILE_LINES
            and "generated" not in f.read_text()[:400]]
    assert not long, long
    wide = [f"{f.relative_to(ROOT)}:{i}" for f in cpp_files() if "generated" not in f.read_text()[:400]
            for i, line in enumerate(f.read_text().splitlines(), 1)
            if len(line) > MAX_LINE and "http" not in line and 'R"' not in line]
    assert not wide, wide


def test_no_unfinished_marks():
    pattern = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|not implemented yet|unimplemented")
    this = Path(__file__)
    found = [f"{f.relative_to(ROOT)}:{i}" for f in sources(".h", ".cc", ".py", ".cu") if f != this
             for i, line in enumerate(f.read_text(errors="replace").splitlines(), 1) if pattern.search(line)]
    assert not found, found


def test_only_one_file_reads_the_environment():
    readers = [str(f.relative_to(ROOT)) for f in cpp_files()
               if re.search(r"\b(secure_)?getenv\s*\(", f.read_text()) and "tests/" not in str(f)]
    assert len(readers) <= 1, readers


def test_every_test_file_is_built():
    built = re.findall(r"millrace_tests\((\S+)", (ROOT / "tests/CMakeLists.txt").read_text())
    lost = [str(f.relative_to(ROOT)) for f in sources("_test.cc")
            if str(f.parent.relative_to(ROOT / "tests")) not in built]
    assert not lost, lost


def test_top_level_is_the_architecture():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True,
                           text=True).stdout.splitlines()
    top = {f.split("/")[0] for f in files}
    assert top <= {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", ".ci", ".clang-format",
                   ".gitignore", "engine", "kernels", "server", "proto", "models", "tests", "tools",
                   "deploy"}, top
