"""Text recognition of scanned pages: words missed and invented, scripts that are not known, and what is found again.

    python benchmarks/ocr.py pages --fonts DIR          each language, 150 and 200 dpi, clean, noisy, turned
    python benchmarks/ocr.py pages --fonts DIR --by tesseract      the languages that tesseract has
    python benchmarks/ocr.py scripts --fonts DIR        false alarms, and pages of other scripts that were indexed
    python benchmarks/ocr.py sample --fonts DIR         the sample's documents as scans: nDCG@10 beside that over text

Pages are drawn: texts of ocr_texts.toml, 11 points, serif and sans. DIR has, at any depth, the fonts of Debian's
packages fonts-noto-core, fonts-noto-cjk, fonts-liberation2 and fonts-dejavu-core. Noise: Gaussian of 25 of 255, then
JPEG of quality 40; turned: by 2 degrees. Words are compared as bags, so that order does not count (characters where
there are no spaces); order is beside: words that are out of it. CPU seconds are those of one thread.
"""

from __future__ import annotations

import argparse
import difflib
import io
import re
import resource
import statistics
import tempfile
import time
import tomllib
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from figures import record
from PIL import Image, ImageDraw, ImageFont

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.ocr.engines import languages, tesseract
from ragidx.corpora.readers.ocr.pages import Scans
from ragidx.corpora.readers.registry import documents

TEXTS = tomllib.loads(Path(__file__).with_name("ocr_texts.toml").read_text("utf-8"))
CONDITIONS = {f"{kind} {dpi}": (dpi, kind) for kind in ("clean", "noisy", "turned") for dpi in (150, 200)}
PLAIN = {"clean 200": (200, "clean"), "noisy 150": (150, "noisy")}
HARDER = {
    "fax 200": (200, "fax"),
    "blurred 150": (150, "blurred"),
    "noisy 150": (150, "noisy"),
    "turned 200": (200, "turned"),
}
MEASURED = (
    *("english", "german", "french", "spanish", "polish", "turkish"),
    *("chinese", "traditional", "japanese"),
)
UNSPACED = ("chinese", "traditional", "japanese", "thai", "khmer", "lao", "burmese")
LEFTWARD = ("arabic", "persian", "hebrew", "urdu")
CJK = {"chinese": 2, "traditional": 3, "japanese": 0, "korean": 1}  # faces of the collection
SCRIPTS = {
    **{"hebrew": "Hebrew", "thai": "Thai", "hindi": "Devanagari", "georgian": "Georgian", "armenian": "Armenian"},
    **{
        "bengali": "Bengali",
        "tamil": "Tamil",
        "telugu": "Telugu",
        "khmer": "Khmer",
        "lao": "Lao",
        "burmese": "Myanmar",
    },
    **{"amharic": "Ethiopic", "gujarati": "Gujarati"},
}
NAMES = {
    **{"english": "eng", "german": "deu", "french": "fra", "spanish": "spa", "russian": "rus", "korean": "kor"},
    **{"arabic": "ara", "thai": "tha", "japanese": "jpn", "chinese": "chi_sim"},
}


class Fonts:
    """Fonts below a folder, by language and style."""

    def __init__(self, folder):
        self.paths = {path.name: path for path in Path(folder).rglob("*.tt[fc]")}

    def font(self, language, style, pixels):
        """The font of a language."""
        if language in CJK:
            name = f"Noto{style}CJK-Regular.ttc"
            return ImageFont.truetype(self.paths[name], pixels, index=CJK[language])
        if language in LEFTWARD and language != "hebrew":
            name = "NotoNaskhArabic-Regular.ttf" if style == "Serif" else "NotoSansArabic-Regular.ttf"
        elif language in SCRIPTS:
            name = f"Noto{style}{SCRIPTS[language]}-Regular.ttf"
        elif language in ("vietnamese", "bulgarian", "serbian"):
            name = f"Noto{style}-Regular.ttf"
        else:
            name = "LiberationSerif-Regular.ttf" if style == "Serif" else "DejaVuSans.ttf"
        return ImageFont.truetype(self.paths[name], pixels)


def wrapped(text, font, width, language):
    """Paragraphs as lines of at most so many pixels."""
    for paragraph in text.strip().split("\n\n"):
        line, spaced = "", language not in ("chinese", "traditional", "japanese")
        for unit in paragraph.split() if spaced else paragraph.replace("\n", ""):
            longer = f"{line} {unit}" if line and spaced else line + unit
            if line and font.getlength(longer) > width:
                yield line
                longer = unit
            line = longer
        yield line
        yield ""


def drawn(text, language, style, fonts, dpi, kind="clean"):
    """A text as pages of A4."""
    scale, rng = dpi / 72, np.random.default_rng(0)
    size, font = (round(595 * scale), round(842 * scale)), fonts.font(language, style, round(11 * scale))
    lines, pages = list(wrapped(text, font, size[0] - 120 * scale, language))[:-1], []
    most = int((size[1] - 120 * scale) // (16.5 * scale))
    for start in range(0, len(lines), most):
        page = Image.new("L", size, 255)
        pen = ImageDraw.Draw(page)
        for row, line in enumerate(lines[start : start + most]):
            left = size[0] - 60 * scale - font.getlength(line) if language in LEFTWARD else 60 * scale
            pen.text((left, (60 + 16.5 * row) * scale), line, fill=0, font=font)
        pages.append(spoiled(page, kind, rng))
    return pages


def spoiled(page, kind, rng):
    """A page after a copier."""
    if kind == "turned":
        return page.rotate(2, Image.BICUBIC, fillcolor=255)
    if kind == "fax":
        small = page.resize((page.width // 2, page.height // 2)).point(lambda value: 255 if value > 150 else 0)
        return small.resize(page.size)
    if kind == "blurred":
        from PIL import ImageFilter

        return page.filter(ImageFilter.GaussianBlur(1.3))
    if kind == "noisy":
        noise = np.asarray(page, np.float32) + rng.normal(0, 25, (page.height, page.width))
        out = io.BytesIO()
        Image.fromarray(noise.clip(0, 255).astype("u1")).save(out, "JPEG", quality=40)
        return Image.open(io.BytesIO(out.getvalue()))
    return page


def read(pages, setting="auto"):
    """The text of pages, what was left out of it, and CPU seconds; of tesseract those of its process."""
    scans, left = Scans(setting, Limits(), tesseract), Tally()
    own, inner = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    text = "\n".join(line for page in pages for line in scans.lines(lambda p=page: p, left))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() - own + after.ru_utime + after.ru_stime - inner.ru_utime - inner.ru_stime
    return text, left, seconds


def words(text, language):
    """Words, or characters where there are no spaces."""
    plain = unicodedata.normalize("NFKC", text)
    return list(re.sub(r"\s", "", plain)) if language in UNSPACED else re.findall(r"\w+", plain)


def compared(text, found, language):
    """Percent of the words that are missed, invented, and out of order."""
    owed, given = words(text, language), words(found, language)
    a, b = Counter(owed), Counter(given)
    missed, invented = sum((a - b).values()) / len(owed), sum((b - a).values()) / max(1, len(given))
    same = sum(block.size for block in difflib.SequenceMatcher(None, owed, given, autojunk=False).get_matching_blocks())
    in_common = max(1, sum((a & b).values()))
    return [100 * missed, 100 * invented, max(0.0, 100 * (1 - same / in_common))]


def pages(fonts, by):
    """Words by language and condition; languages of TEXTS that the engine reads."""
    known = set(languages()) if by == "tesseract" else set()
    rows, seconds = [], []
    every = {**TEXTS["read"], **TEXTS["unknown"]} if known else {one: TEXTS["read"][one] for one in MEASURED}
    for language, texts in every.items():
        setting = "auto" if by == "auto" else NAMES.get(language, "")
        if by == "tesseract" and setting not in known:
            continue
        row = [language]
        for dpi, kind in CONDITIONS.values():
            values = []
            for style in ("Serif", "Sans"):
                found, _, took = read(drawn(texts["reports"], language, style, fonts, dpi, kind), setting)
                values.append(compared(texts["reports"], found, language))
                seconds.append(took)
            row += [round(statistics.mean(column), 1) for column in zip(*values, strict=True)]
        rows.append(row)
        print(row, flush=True)
    columns = ["language", *(f"{name} {what}" for name in CONDITIONS for what in ("missed", "invented", "order"))]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    values = {"columns": columns, "rows": rows, "s a page": round(statistics.median(seconds), 2), "MiB": round(peak)}
    record("ocr: words", values, engine=by, words="percent, means of a serif and a sans page")


def scripts(fonts):
    """Pages that were taken for another script, and pages of another script that were indexed."""
    counts, wrong = defaultdict(Counter), defaultdict(list)
    for kind, every in TEXTS.items():
        for language, texts in every.items():
            is_new = "chooses" not in texts
            for number, (name, (dpi, spoiling)) in enumerate(({**PLAIN, **HARDER} if is_new else HARDER).items()):
                style = ("Serif", "Sans")[number % 2]
                found, left, _ = read(drawn(texts["reports"], language, style, fonts, dpi, spoiling))
                reads = kind == "read" and language != "vietnamese"
                group = f"{'new' if is_new else 'known'} languages, {'read' if reads else 'not read'}"
                counts[group]["pages"] += 1
                share = len(found) / len(texts["reports"])
                if (share < 0.9) if reads else found:
                    counts[group]["wrong"] += 1
                    wrong[group].append([language, name, style, round(share, 2), list(left)])
                    print(wrong[group][-1], flush=True)
    values = {group: dict(count, which=wrong[group]) for group, count in counts.items()}
    record("ocr: scripts", values, wrong="read: less than 0.9 of the characters; not read: any of them")


def sample(fonts, folder):
    """nDCG@10 of the sample's questions, over its documents and over scans of them."""
    whole = Path(ragidx.__file__).parent / "corpora" / "sample"
    folder.mkdir(parents=True, exist_ok=True)
    scans, plain = folder / "scans", folder / "plain"
    numbers, n_pages = {}, 0
    for place in (scans, plain):
        place.mkdir(exist_ok=True)
    for number, document in enumerate(documents(whole / "documents", on_skip=lambda one: None)):
        title = str(document.heading or document.metadata.get("title") or "")
        text = document.text if title in document.text[:500] else f"{title}\n\n{document.text}"
        text = unicodedata.normalize("NFC", text)
        numbers[document.id] = number
        (plain / f"{number}.txt").write_text(text)
        first, *others = drawn(text, "english", "Serif", fonts, 150)
        n_pages += 1 + len(others)
        if not (scans / f"{number}.pdf").exists():
            first.save(scans / f"{number}.pdf", save_all=True, append_images=others, resolution=150)
    values, indexes = {"documents": len(numbers), "pages": n_pages}, {}
    for name, corpus, more in (
        ("text", whole / "documents", {}),
        ("plain text", plain, {}),
        ("scans", scans, {"fields": {"ocr": "auto"}}),
    ):
        started = time.perf_counter()
        place = folder / f"index-{name.replace(' ', '-')}"
        report = ragidx.build(corpus, place, workers=1, **more).report
        indexes[name] = (place, time.perf_counter() - started)
        print(name, report.n_documents, report.left, indexes[name], flush=True)
    for mode in ("hybrid", "lexical", "dense"):
        for name, (index, _) in indexes.items():
            ending = {"text": None, "plain text": ".txt", "scans": ".pdf"}[name]
            measured = ndcg(index, whole, mode, lambda one, e=ending: one if e is None else f"{numbers[one]}{e}")
            values[f"{mode}, {name}"] = round(measured, 4)
        values[f"{mode}, scans / text"] = round(values[f"{mode}, scans"] / values[f"{mode}, text"], 4)
    values["s a page"] = round(indexes["scans"][1] / n_pages, 2)
    record("ocr: sample", values, dpi=150, questions=60)


def ndcg(index, whole, mode, renamed):
    """nDCG@10 of the sample's questions; ids of documents are renamed."""
    import math

    queries, qrels, total = load_queries(whole), load_qrels(whole), 0.0
    with ragidx.Index(index) as opened:
        for query, text in queries.items():
            judged = {renamed(one): grade for one, grade in qrels[query].items()}
            hits = opened.search(text, k=10, per_document=1, mode=mode)
            got = sum(judged.get(hit.doc_id, 0) / math.log2(rank + 1) for rank, hit in enumerate(hits, start=1))
            best = sorted(judged.values(), reverse=True)[:10]
            total += got / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, start=1))
    return total / len(queries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pages", "scripts", "sample"))
    parser.add_argument("--fonts", required=True)
    parser.add_argument("--by", choices=("auto", "tesseract"), default="auto")
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    fonts = Fonts(given.fonts)
    if given.what == "pages":
        pages(fonts, given.by)
    elif given.what == "scripts":
        scripts(fonts)
    else:
        with tempfile.TemporaryDirectory() as own:
            sample(fonts, given.work or Path(own))


if __name__ == "__main__":
    main()
