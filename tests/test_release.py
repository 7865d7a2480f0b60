"""What a release is made of: the same bytes of the same commit, licences and pins of all that is in it, an image."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import ragidx

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PATTERNS = PROJECT["tool"]["setuptools"]["package-data"]
TOP = (
    "corpora",
    "indexer",
    "retriever",
    "pipelines",
    "__init__.py",
    "__main__.py",
    "py.typed",
    "setup.py",
    "MANIFEST.in",
)
TEXTS = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "NOTICE.md", "CHANGELOG.md")


def load_release() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / "release" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copied(folder: Path) -> Path:
    """The project without tests, docs and the 45 MB of weights."""
    folder.mkdir(parents=True)
    for name in (*TOP, *TEXTS):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.slow
def test_two_builds_are_equal_and_the_sdist_makes_the_wheel(tmp_path: Path) -> None:
    release = load_release()
    first, second = copied(tmp_path / "a"), copied(tmp_path / "another" / "place")
    for number, path in enumerate(sorted(second.rglob("*"))):
        os.utime(path, (number, number + 10**9))

    for tree, dist in ((first, tmp_path / "1"), (second, tmp_path / "2")):
        names = release.build(tree, dist, 1_700_000_000)

    release.check_equal(tmp_path / "1", tmp_path / "2")
    assert names == [f"ragidx-{ragidx.__version__}-py3-none-any.whl", f"ragidx-{ragidx.__version__}.tar.gz"]
    wheel = tmp_path / "1" / names[0]
    assert release.metadata_of(wheel)["Version"] == ragidx.__version__
    with zipfile.ZipFile(wheel) as archive:
        assert {Path(name).name for name in archive.namelist() if "/licenses/" in name} == {"LICENSE", "NOTICE.md"}
        assert not [name for name in archive.namelist() if "/tests/" in name or name.endswith("setup.py")]


def test_builds_that_differ_are_refused(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.whl").write_text(name)

    with pytest.raises(SystemExit, match="Error: two builds of the same commit differ: "):
        load_release().check_equal(tmp_path / "1", tmp_path / "2")


def test_the_bill_of_materials_has_every_pin_and_both_models() -> None:
    bill = load_release().bill_of_materials(ROOT, "1.2.3", 1_700_000_000)

    pins = {line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    libraries = [one for one in bill["components"] if one["type"] == "library"]
    assert {f"{one['name']}=={one['version']}" for one in libraries} == pins
    required = {one["name"].lower().replace("_", "-") for one in libraries if one["scope"] == "required"}
    assert required == {re.split("[<>=]", one)[0].lower() for one in PROJECT["project"]["dependencies"]}
    assert [one["name"] for one in bill["components"] if one not in libraries] == ["mini", "mini-decoder"]
    assert len({one["bom-ref"] for one in bill["components"]}) == len(bill["components"])
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert bill == load_release().bill_of_materials(ROOT, "1.2.3", 1_700_000_000)


def test_the_licence_of_everything_that_is_bundled_is_in_one_file() -> None:
    notice = (ROOT / "NOTICE.md").read_text("utf-8")
    bundled = [
        f"{package.removeprefix('ragidx').lstrip('.').replace('.', '/')}/{pattern}"
        for package, patterns in PATTERNS.items()
        for pattern in patterns
        if not pattern.startswith("sample/") and pattern != "py.typed"
    ]

    assert len(bundled) > 8
    for pattern in [*bundled, "corpora/sample/*"]:
        assert f"`{pattern}`" in notice, pattern
        assert list(ROOT.glob(pattern)), pattern
    for model in ("mini", "mini-decoder"):  # each source of a model's texts that its own page names is here
        page = (ROOT / "indexer/models" / model / "README.md").read_text("utf-8")
        page = page[page.index("## Data and licences") : page.index("## Limits")]
        assert set(re.findall(r"CC-BY-SA-4.0|CC-BY-SA-3.0|CC-BY-4.0|CC-BY-3.0|CC0-1.0|MIT|Apache-2.0", page)) <= set(
            re.findall(r"[\w.-]+[\w]", notice)
        )


@pytest.mark.wheel
def test_the_version_is_stated_once() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ragidx.__version__"}
    command = [sys.executable, "-m", "ragidx", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(ragidx.__file__).parents[1])
    assert done.stdout == f"ragidx, version {ragidx.__version__}\n"


# -- the image: there may be no Docker here, so that its steps are done in folders ---------------------------------


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each with what follows it."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest) for line in text.splitlines() if line for name, _, rest in [line.partition(" ")]]


def is_ignored(name: str) -> bool:
    rules = (ROOT / ".dockerignore").read_text().split()
    return name in rules or (name.startswith(".") and ".*" in rules)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_the_steps_of_the_dockerfile_make_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra 'serve'")
    ragidx.build(ROOT / "corpora/sample/documents/chemistry", tmp_path / "index")
    listed = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    if names.returncode:
        pytest.skip("not a checkout")
    places = {"/src": tmp_path / "src", "/opt/ragidx": tmp_path / "opt", "/index": tmp_path / "index"}
    # The packages are those of this Python, and not fetched: that each has a pin is a test of its own.
    here = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONPATH": sysconfig.get_path("purelib")}
    environment, port = {**os.environ, **here, "RAGIDX_TOKEN": "a-token-of-this-test-alone-" * 2}, free_port()
    environment.pop("RAGIDX_TEST_WHEEL", None)

    def there(words: str) -> str:
        words = words.replace("${EXTRAS}", environment.get("EXTRAS", ""))
        return re.sub("|".join(places), lambda found: str(places[found[0]]), words)

    for name, rest in instructions():
        if name == "ARG":
            environment.setdefault(*rest.split("="))
        elif name == "COPY" and not rest.startswith("--from"):
            assert rest == ". /src"
            for path in names.stdout.splitlines():
                if path.endswith("mini-decoder/model.safetensors"):  # half of the bytes, which no service needs
                    continue
                if not is_ignored(path.partition("/")[0]) and (ROOT / path).is_file():
                    (places["/src"] / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / path, places["/src"] / path)
        elif name == "RUN" and "useradd" not in rest:
            step = ["sh", "-c", there(rest)]
            done = subprocess.run(step, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        elif name == "ENV":
            path = re.search(r"PATH=(\S+?):", rest)
            assert path is not None
            environment["PATH"] = f"{there(path[1])}:{environment['PATH']}"
    entry, health = (
        [rest for name, rest in instructions() if name == wanted] for wanted in ("ENTRYPOINT", "HEALTHCHECK")
    )
    command = [there(word) for word in json.loads(entry[0])]
    program = places["/opt/ragidx"] / "bin" / command[0]
    assert program.is_file()
    assert not (places["/src"] / "tests").exists()
    service = subprocess.Popen([str(program), *command[1:], "--port", str(port)], env=environment, cwd=tmp_path)
    try:
        probe = re.search(r"CMD (\[.*\])", health[0])
        assert probe is not None
        check = [word.replace("8411", str(port)) for word in json.loads(probe[1])]
        until = time.monotonic() + 120
        while subprocess.run(check, env=environment, capture_output=True, check=False).returncode:
            assert service.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        service.terminate()
        service.wait(60)
