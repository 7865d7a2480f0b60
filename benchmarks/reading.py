"""CPU seconds a MB and memory of reading a format, beside another checkout, in turns.

    python benchmarks/reading.py DIR --beside CHECKOUT [--rounds 3]

DIR takes a file of about a megabyte of text a format, made of what packages install. A process reads one file three
times: the first loads, the best of the others counts. Needs the extra `test`; the other checkout what its readers need.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import record, spread
from mixed_folder import _docx, _mail, _notebook, _odf, _pdf, _some, _xlsx, _zip_of

READ = """
import json, resource, sys, time
from pathlib import Path
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.registry import documents
times = []
for _ in range(3):
    started, n_chars = time.process_time(), 0
    for document in documents(Path(sys.argv[1]), ReadOptions(), on_skip=lambda one: None):
        n_chars += len(document.text)
    times.append(time.process_time() - started)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": min(times[1:]), "load": times[0], "characters": n_chars, "MiB": peak}))
"""


def files(folder: Path) -> list[Path]:
    """A file a format."""
    texts = [path.read_text("utf-8", "ignore") for path in _some(".md", 40) + _some(".rst", 30)]
    paragraphs = [" ".join(part.split()) for text in texts for part in text.split("\n\n") if part.strip()]
    paragraphs *= 5
    plain = [part.encode("ascii", "ignore").decode() for part in paragraphs]
    whole = "\n\n".join(paragraphs)
    made: dict[str, bytes | str] = {
        "a.docx": _docx(plain),
        "a.xlsx": _xlsx(paragraphs),
        "a.pptx": _pptx(plain),
        "a.odt": _zip_of({"content.xml": _odf(plain)}),
        "a.pdf": _pdf(plain[:1200]),
        "a.rtf": "{\\rtf1\\ansi " + "\\par ".join(re.sub(r"[\\{}]", "", part) for part in plain) + "}",
        "a.html": "<html><body><main>" + "".join(f"<p>{_escaped(part)}</p>" for part in paragraphs) + "</main></body>",
        "a.mbox": b"".join(
            b"From x@y\n" + _mail(b"Name: a\n\n" + part.encode(), "") + b"\n" for part in paragraphs[:800]
        ),
        "a.csv": "id,text\n" + "".join(f'{at},"{part.replace(chr(34), "")}"\n' for at, part in enumerate(paragraphs)),
        "a.ipynb": _notebook(whole, whole),
        "a.md": whole,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return [folder / name for name in made]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _pptx(paragraphs: list[str]) -> bytes:
    from pptx import Presentation

    deck = Presentation()
    for start in range(0, min(len(paragraphs), 2000), 8):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = (
            "A slide",
            "\n".join("".join(c for c in part if c.isprintable()) for part in paragraphs[start : start + 8]),
        )
    with tempfile.NamedTemporaryFile(suffix=".pptx") as sink:
        deck.save(sink.name)
        return Path(sink.name).read_bytes()


def measured(checkout: Path, path: Path) -> dict[str, float]:
    """One process of a checkout reads a file."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ragidx").symlink_to(checkout.resolve())
        environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
        command = [sys.executable, "-W", "ignore", "-c", READ, str(path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=folder)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def per_mb(rounds: list[tuple[dict[str, float], dict[str, float]]], side: int) -> float:
    """The least CPU seconds a megabyte of text of one side."""
    return round(1e6 * min(both[side]["seconds"] / max(1, both[side]["characters"]) for both in rounds), 3)


def main() -> None:
    """Measure each format in turns, and record a row a format."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--beside", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    ours = Path(__file__).resolve().parents[1]
    for path in files(arguments.folder):
        rounds = [(measured(ours, path), measured(arguments.beside, path)) for _ in range(arguments.rounds)]
        ratios = [new["seconds"] / old["seconds"] for new, old in rounds]
        new, old = rounds[-1]
        record(
            "reading beside an earlier state",
            {
                "ratio": {key: round(value, 2) for key, value in spread(ratios).items()},
                "CPU s/MB": per_mb(rounds, 0),
                "before: CPU s/MB": per_mb(rounds, 1),
                "load s": round(new["load"] - new["seconds"], 2),
                "before: load s": round(old["load"] - old["seconds"], 2),
                "peak MiB": round(new["MiB"]),
                "before: peak MiB": round(old["MiB"]),
            },
            format=path.suffix,
            characters=[new["characters"], old["characters"]],
        )


if __name__ == "__main__":
    main()
