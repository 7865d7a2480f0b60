"""The figures of docs/benchmarks.md and other pages: the latest row of each setting in figures.jsonl.

`python benchmarks/table.py` prints those of docs/benchmarks.md; with `--write`, all go into their files, between marks.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES = Path(__file__).with_name("figures.jsonl")
QUALITY = "scifact quality"
WORD_TABLES = runpy.run_path(str(Path(__file__).with_name("word_tables.py")))
OPENING = runpy.run_path(str(Path(__file__).with_name("opening.py")))["opening"]
SENTENCES = runpy.run_path(str(Path(__file__).with_name("sentences.py")))
WORDS = WORD_TABLES["WORDS"]
SYNTHETIC = "synthetic queries against judgements"
ENCODING = (
    "encode throughput against sentence-transformers",
    "encode throughput of a first call against sentence-transformers",
)
# What tells two rows of a figure apart.
SETTINGS = (
    *("model", "options", "method", "filter", "index", "rows", "corpus_bytes", "extras", "tree", "search", "dim"),
    *("chunker", "set", "size", "markdown", "folder", "files", "kind", "pairs", "mode", "engine"),
)


def rows(path=FIGURES):
    """The latest row of each figure and setting, in the order in which they were first measured."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        named = {name: row["setting"].get(name) for name in SETTINGS}
        size = row["values"].get("chunks") if row["figure"] == "build at scale" else None
        if row["figure"] in ENCODING:  # it depends on the processor: the latest of each kind
            size = ["amx" in row["machine"], row["setting"]["dtype"] == "float32"]
        if row["figure"] == "dead rows":
            size = [row["setting"]["index_type"], row["setting"]["documents"]]
        key = json.dumps([row["figure"], named, size])
        found[key] = row
    return list(found.values())


def of(figures, found):
    return [row for row in found if row["figure"] in figures]


def machines(found):
    return " or ".join(sorted({row["machine"] for row in found}))


def before_and_after(found):
    """What a question and a command cost, against another tree, in turns."""
    lines = []
    for row in of(["a question, against the base"], found):
        about = f"a warm hybrid question, {row['values']['chunks']:,} chunks"
        lines.append((about, "ms", row["values"]["CPU ms a question"], row["values"]["load"]))
    for row in of(["starting, against the base"], found):
        for name, about in (("query", "`ragidx query`"), ("help", "`ragidx --help`")):
            lines.append((f"{about}, whole process", "s", row["values"][f"{name}, cpu s"], row["values"]["load"]))
    head = ["| processor time, in turns | now | before | ratio | load of the machine |", "| --- |" + " --- |" * 4]
    body = [
        f"| {about} | {cost['here']['median']:.2f} {unit} | {cost['base']['median']:.2f} {unit} | {cost['ratio']:.2f}"
        f" | {load} |"
        for about, unit, cost, load in lines
    ]
    return ["\n".join(head + body)] if body else []


def markdown(found):
    """All tables of docs/benchmarks.md."""
    timed = [
        row for row in found if row["figure"] not in (QUALITY, WORDS, SYNTHETIC, "bm25 quality", "quality of chunks")
    ]
    parts = [
        f"Speed and memory: {machines(timed)}, shared with other work; single runs, but for the medians of the"
        f" encoding speed (5 runs in turns) and the cold start (7). Quality: {machines(of([QUALITY], found))}."
    ]
    quality = of([QUALITY], found)
    if quality:
        head = [
            "| SciFact by `build` and `query`, whole documents | nDCG@10 | recall@100 | float16 bytes |",
            "| --- | --- | --- | --- |",
        ]
        body = [
            f"| {row['setting']['model']} | {row['values']['nDCG@10']:.3f} | {row['values']['R@100']:.3f}"
            f" | {stored(row['values'])} |"
            for row in {row["setting"]["model"]: row for row in quality}.values()
        ]
        parts.append("\n".join(head + body))
    for row in of(ENCODING, found):
        ratio = row["values"]["ratio"]
        chip = f"a processor {'with' if 'amx' in row['machine'] else 'without'} AMX"
        chip += ", in float32" if row["setting"]["dtype"] == "float32" else ", with bfloat16"
        first = ", the first call of a new encoder," if "first call" in row["figure"] else ""
        parts.append(
            f"Encoding{first} on {chip}: {row['setting']['texts']} SciFact documents with"
            f" {row['setting']['model']}, against"
            f" sentence-transformers' own `encode` with its defaults: **{ratio['median']:.2f}x**"
            f" ({ratio['min']:.2f} to {ratio['max']:.2f}, {ratio['runs']} runs in turns; {row['setting']['dtype']},"
            f" {row['setting']['threads']} against {row['setting']['their_threads']} threads,"
            f" least cosine {row['values']['least cosine']:.5f})."
        )
    installed = of(["install"], found)
    parts += [SENTENCES["installs"](installed)] if installed else []
    for row in of(["cold start"], found):
        cold = row["values"]
        told = ", ".join(f"`{n}` {v['median']:.2f} s" for n, v in cold.items() if isinstance(v, dict))
        parts.append(
            f"Cold start, whole processes: {told}. `--help` takes {cold['--help / import click']:.1f} times"
            f" `import click`, a query {cold['query / load']:.2f} times the bare loading of torch and the model."
        )
    parts += [SENTENCES["first_answer"](row) for row in of(["folder to the first answer"], found)]
    parts += before_and_after(found)
    parts += [SENTENCES["spectrum"](row) for row in of(["unembedding spectrum"], found)]
    scale = of(["build at scale"], found)
    if scale:
        head = [
            "| `build` with mini | seconds | of them encoding | peak memory | CPU s | before the present chunker |",
            "| --- |" + " --- |" * 5,
        ]
        body = [
            f"| {v['chunks']:,} {named.strip()} | {v['seconds']} | {v['seconds encoding']} | {v['peak MiB']} MiB"
            f" | {v.get('CPU s', '')} | {v.get('rival: CPU s', '')} |"
            for v, named in ((row["values"], f"chunks {row['setting']['options']}") for row in scale)
        ]
        parts.append("\n".join(head + body))
    for row in of(["cold start of a decoder"], found):
        load, query = (row["values"][name]["median"] for name in ("load torch and the model", "ragidx query"))
        parts.append(
            f"Cold start, {row['setting']['model']} with {row['setting']['method']}: bare loading of torch and the"
            f" model {load:.2f} s, `ragidx query` {query:.2f} s."
        )
    parts += [SENTENCES["by_decoder"](row) for row in of(["decoder throughput against transformers"], found)]
    parts += [SENTENCES["by_format"](row) for row in of(["decoder throughput by number format"], found)]
    parts += [SENTENCES["folder"](row) for row in of(["mixed folder read"], found)[-1:]]
    return "\n\n".join(parts + WORD_TABLES["chunks"](found) + WORD_TABLES["words"](found) + engine(found)) + "\n"


def engine(found):
    """All of them, in the order of a reader's questions: size, search, rivals, change."""
    parts = [size(row) for row in found if row["figure"] == "build of vectors"]
    parts += [compaction(row) for row in found if row["figure"] == "compaction"]
    parts += [search(row) for row in found if row["figure"] == "search beside FAISS"]
    repeated = [row for row in found if row["figure"] == "equal vectors"]
    parts += [equal_vectors(repeated)] if repeated else []
    parts += [incremental(row) for row in found if row["figure"] == "incremental build"]
    parts += [workers(row) for row in found if row["figure"] == "workers"]
    parts += [one_process(row) for row in found if row["figure"] == "build in one process"]
    parts += [stages(row) for row in found if row["figure"] == "stages of the build's own process"]
    parts += [small_builds(row) for row in found if row["figure"] == "small builds"]
    parts += [adds(row) for row in found if row["figure"] == "adds"]
    beside = [row for row in found if row["figure"] == "dead rows"]
    parts += [dead_rows(beside)] if beside else []
    foreseen = [row for row in found if row["figure"] == "plan against build"]
    swept = [row for row in found if row["figure"] == "sweep"]
    return parts + ([plans(foreseen)] if foreseen else []) + ([sweeps(swept)] if swept else [])


def size(row):
    v, options = row["values"], row["setting"]["options"]
    made, recalls = ", ".join(v["made"]), ", ".join(f"{recall:.3f}" for recall in v["ann_recall@10 when built"])
    return (
        f"`build --vectors`{f' {options}' if options else ''}, {v['rows']:,} x {row['setting']['dim']} float16 (115,000"
        f" vectors of all-MiniLM-L6-v2, the rest between near ones, with noise): {v['seconds']:.0f} s, {made}"
        f" (ann_recall@10 {recalls}), peak memory {v['peak MiB']:,} MiB, which is {v['peak above the index MiB']:,} MiB"
        f" above the index itself; opened in {v['open ms']:.0f} ms."
    )


def compaction(row):
    v = row["values"]
    return (
        f"`compact` of the same after a fifth was deleted: {v['seconds']:.0f} s with the index made anew"
        f" ({', '.join(v['made'])}), {v['peak MiB']:,} MiB, {v['bytes before'] / 1e6:,.0f} MB become"
        f" {v['bytes after'] / 1e6:,.0f} MB; the deletion itself {v['seconds of the deletion']:.1f} s."
    )


def search(row):
    v, one, many = row["values"], row["values"]["batch 1"], row["values"]["batch 64"]
    return (
        f"Search of {row['setting']['rows']:,} x {row['setting']['dim']} ({v['made']}), in turns with the same FAISS"
        f" index called directly, medians: one query {one['ragidx ms']:.3f} ms against {one['FAISS ms']:.3f}"
        f" ({100 * one['more']:+.1f} %), a batch of 64 {many['ragidx ms']:.2f} ms against {many['FAISS ms']:.2f}"
        f" ({100 * many['more']:+.1f} %). Real questions find {v['ann_recall@10 of the queries']:.3f} of their ten"
        f" nearest rows. A scan of all vectors reads {v['scan GB/s']} GB/s, {v['share of the bandwidth']:.2f} of what"
        f" adding up the same bytes reads."
    )


def equal_vectors(found):
    """Many equal vectors in an index, each of them or once, a line a type."""
    setting, repeats = found[0]["setting"], found[0]["values"]["repeats"]
    lines = [
        f"| {setting['rows']:,} vectors, {repeats:,} of which repeat another; each indexed, and once | effort |"
        " recall by the build | by 600 questions | questions without one of the ten best | MB |",
        "| --- |" + " --- |" * 5,
    ]
    for row in found:
        pairs = zip(row["values"]["each"].items(), row["values"]["once"].values(), strict=True)
        shown = {name: f"{one} → {other}" for (name, one), other in pairs}
        cells = [shown[name] for name in ("effort", "told", "real", "without one", "MB")]
        lines.append(f"| {row['setting']['index']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def incremental(row):
    v = row["values"]
    return (
        f"One document in a hundred changed, of {v['chunks']:,} chunks: {v['1 % changed: s']:.1f} s against"
        f" {v['full s']:.0f} s for all ({100 * v['time share']:.1f} %), {100 * v['bytes share']:.1f} % of the bytes"
        f" written. Nothing changed: {v['idle s']:.2f} s, of which starting Python and ragidx takes"
        f" {v['starting Python and ragidx s']:.2f}; reading and hashing the same files takes {v['read and hash s']:.2f}"
        f" ({v['idle against reading and hashing']:.1f} times)."
    )


def corpus_of(setting):
    """How a corpus of text is named in a sentence."""
    n_files = setting["files"]
    return f"{setting['mb']:,.0f} MB of text in " + (f"{n_files:,} small files" if n_files > 1 else "one file")


def times(ratio, digits=2):
    """A ratio of pairs: its median, least and greatest."""
    return f"**{ratio['median']:.{digits}f}** ({ratio['min']:.{digits}f} to {ratio['max']:.{digits}f})"


def workers(row):
    """A line a way of building; then the ratios, pair by pair."""
    v, setting = row["values"], row["setting"]
    lines = [
        f"| {corpus_of(setting)}, median of {setting['pairs']} | s | CPU s, own process | CPU s, workers"
        " | MiB, own process | MiB, a worker | load |",
        "| --- |" + " --- |" * 6,
    ]
    for name, one in v["medians"].items():
        label = "before there were workers" if name == "base" else name
        lines.append(
            f"| {label} | {one['wall']:,.1f} | {one['parent']:,.1f} | {one['workers']:,.1f}"
            f" | {one['parent_mib']:,.0f} | {one['worker_mib']:,.0f} | {one['load']:.1f} |"
        )
    several = f"{setting['workers']} workers"
    ratios = [f"{times(v['wall / 1 worker'])} of one worker's time and {times(v['CPU / 1 worker'])} of its CPU time"]
    if "wall / base" in v:
        ratios.append(f"{times(v['wall / base'])} of the time and {times(v['CPU / base'])} of the CPU time before")
    return "\n".join(lines) + (
        f"\n\n{several} take {', '.join(ratios)}. The own process takes {v['parent CPU s a MB']:.3f} s of CPU a MB, so"
        f" it can feed some {v['cores that it can feed'] + 1:.0f} cores, itself included."
    )


def one_process(row):
    v, before = row["values"], row["values"]["medians"]["base"]
    return (
        f"In one process, {corpus_of(row['setting'])} take {times(v['CPU / base'])} of the CPU time and"
        f" {times(v['wall / base'])} of the time before token ids came from the cut ({before['parent']:.1f} CPU s)."
    )


def stages(row):
    shares = {name: value for name, value in row["values"].items() if name != "CPU s"}
    named = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
    return f"The own process of such a build ({corpus_of(row['setting'])}), by profile: {named}."


def small_builds(row):
    v, setting = row["values"], row["setting"]
    what = {"md": "Markdown files", "html": "HTML pages"}[setting["kind"]]
    return (
        f"`build` of {setting['files']} {what}, whole processes, {setting['pairs']} pairs with the state before there"
        f" were workers: {times(v['build, wall / base'])} of its time, {times(v['build, CPU / base'])} of its CPU time"
        f" ({v['build, wall s']['median']:.2f} s); nothing changed: {times(v['nothing changed, wall / base'])} and"
        f" {times(v['nothing changed, CPU / base'])} ({v['nothing changed, wall s']['median']:.2f} s)."
    )


def adds(row):
    """A line a system: what one add or deletion takes, and what all of them leave."""
    systems = {name: v for name, v in row["values"].items() if isinstance(v, dict) and "one add, ms" in v}
    n, chunks, versions = row["setting"]["adds"], row["setting"]["chunks"], row["setting"]["versions"]
    synced = row["values"]["one file of 4 KiB written and synced, ms"]["median"]
    lines = [
        f"| {n:,} single adds to {chunks:,} chunks | one add, ms, median (most) | CPU ms | one deletion, ms | all, s"
        " | folder, MiB | files |",
        "| --- |" + " --- |" * 6,
    ]
    for name, v in systems.items():
        lines.append(
            f"| {name} {versions[name]} | {v['all adds, ms']['median']:.1f} ({v['all adds, ms']['max']:,.0f})"
            f" | {v['one add, CPU ms']:.1f} | {v['one delete, ms']['median']:.1f} | {v['all adds, s']:,.0f}"
            f" | {v['folder, MiB']:,.0f} | {v['files']:,} |"
        )
    where = "in memory (/dev/shm)" if row["setting"]["folder"] else "on a disk shared with other work"
    return "\n".join(lines) + f"\n\nThese are {where}: one file of 4 KiB took {synced:.1f} ms to write and sync."


def dead_rows(found):
    """A line an index and share of dead rows: a question's CPU time over that in the compacted index."""
    kinds = list(found[0]["values"]["14% dead"])
    lines = [
        "| questions of a warm index, CPU time over that after `compact` (ms) | " + " | ".join(kinds) + " |",
        "| --- |" + " --- |" * len(kinds),
    ]
    for row in found:
        s = row["setting"]
        for share, values in row["values"].items():
            cells = [f"{values[kind]['ratio']:.2f} ({values[kind]['ms']:.1f})" for kind in kinds]
            size = f"{s['index_type']}, {s['documents']:,} documents"
            lines.append(f"| {size}, {share}{s.get('tree', '')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sweeps(found):
    """A line a width: bytes, quality against the full width, speed of one query."""
    lines = [
        "| `sweep` of SciFact, flat | bytes a vector | nDCG@10 (95 %) | against the raw vectors | ms a query |",
        "| --- |" + " --- |" * 4,
    ]
    for row in found:
        v, s = row["values"], row["setting"]
        name = f"{s['model']}, {s['filter']}, {s['options'].removeprefix('--dim ')}"
        chance = "p < 0.001" if v["p"] < 0.001 else f"p {v['p']:.3f}"
        difference = f"{v['against full width']:+.3f}" + (f", {chance}" if v["against full width"] else "")
        lines.append(
            f"| {name} | {v['vector bytes']} | {v['nDCG@10']:.3f} ({v['low']:.3f} to {v['high']:.3f})"
            f" | {difference} | {v['p50 ms']:.2f} |"
        )
    return "\n".join(lines)


def plans(found):
    """What was foreseen beside what came, a line a build."""
    names = ("chunks", "seconds", "index bytes", "peak MiB")
    lines = [
        "| `build --plan` → what came | share of the corpus read | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * (len(names) + 1),
    ]
    for row in found:
        v = row["values"]
        cells = [f"{v[name]['predicted']:,} → {v[name]['actual']:,}" for name in names]
        label = f"{row['setting']['corpus_bytes'] / 1e6:.1f} MB, {row['setting']['method']}"
        lines.append(f"| {label} | {100 * v['share read']:.0f} % | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def stored(values):
    """Bytes of a vector in an index, which fills it up to a multiple of 8 dimensions of 2 bytes."""
    return -(-values["vector bytes"] // 16) * 16


def tuned(found):
    """What `ragidx tune` chose by queries made of a corpus, and what that is worth on real judgements."""
    lines = [
        "| model, set | part | default | chosen | gain, held out | gain, judged queries |",
        "| --- |" + " --- |" * 5,
    ]
    for row in of(["tune"], found):
        v, setting = row["values"], row["setting"]
        for part in ("vectors", "search"):
            mark = " (advised)" if v[f"{part} advised"] else ""
            gains = [
                f"{one['value']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"
                for one in (v[f"{part}, held out"], v[f"{part}, judged"])
            ]
            chosen = v[f"chosen {part}"] if v[f"chosen {part}"] != v[f"default {part}"] else "the default"
            name = f"{setting['model']}, {setting['set']}, {setting['documents']:,} documents"
            lines.append(f"| {name} | {part} | {v[f'default {part}']} | {chosen}{mark} | {' | '.join(gains)} |")
    return "\n".join(lines) + "\n"


def synthetic(found):
    """How often synthetic queries rank two configurations as judged ones do, a line a set and kind of pair."""
    lines = [
        "| set, queries | compared | pairs that differ | ordered alike | p < .05: other sign | corrected: other sign |",
        "| --- |" + " --- |" * 5,
    ]
    for row in of([SYNTHETIC], found):
        setting = row["setting"]
        name = f"{setting['set']}, {setting['kind']}"
        for kind, pairs in row["values"].items():
            if not isinstance(pairs, dict) or not pairs["differ"]:
                continue
            low, high = (f"{100 * bound:.1f}" for bound in pairs["interval"])
            alike = f"{100 * pairs['alike']:.1f} % ({low} to {high})"
            both = kind.replace(", ", " with ") if "," in kind else f"{kind} with {kind}"
            mark = "*" if "lexical" in kind else ""
            called = (f"{pairs[name]}: {pairs[f'{name}, other sign']}" for name in ("called", "corrected"))
            differ = f"{pairs['differ']} of {pairs['pairs']}"
            lines.append(f"| {name} | {both}{mark} | {differ} | {alike} | {' | '.join(called)} |")
    return "\n".join(lines) + "\n"


def trained(found):
    """What a head and a pooling are worth, a line a model, method and set."""
    columns = {"none": "no filter", "embedfilter": "EmbedFilter", "embedfilter, centred": "EmbedFilter, centred"}
    columns |= {"whitening": "whitening", "head": "head"}
    columns |= {f"pooling {rows}": f"pooling of {rows}" for rows in ("layers", "tokens")}
    lines = [
        f"| model, method, pairs | set | {' | '.join(columns.values())} |",
        "| --- |" + " --- |" * (1 + len(columns)),
    ]
    for row in of(["head"], found):
        setting = row["setting"]
        teacher = f", teacher {setting['teacher']}" if setting["teacher"] else ""
        cut = f", cut at {setting['max_length']}" if setting.get("max_length") else ""
        mode = ", hybrid" if setting.get("mode") == "hybrid" else ""
        name = f"{setting['model']}, {setting['method']}{cut}, {setting['pairs']:,}{teacher}"
        for part, values in row["values"].items():
            if not isinstance(values, dict) or "measure" not in values:
                continue
            cells = []
            for one in map(values.get, columns):
                if one is None:
                    cells.append("-")
                    continue
                mark = "*" if one.get("p", 1) < 0.05 else ""
                cells.append(f"{one['value']:.3f}" + (f" ({one['difference']:+.3f}{mark})" if "p" in one else ""))
            lines.append(f"| {name} | {part}{mode}, {values['measure']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def adapted(found):
    """What `ragidx adapt` said by sentences of the documents, and what its map is worth on real judgements."""
    lines = [
        "| model, method, set | by sentences | kept | weight | judged, dense | judged, default search |",
        "| --- |" + " --- |" * 5,
    ]

    def span(one):
        return f"{one['difference']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"

    for row in of(["adapt"], found):
        setting, values = row["setting"], row["values"]
        name = ", ".join(filter(None, (setting["model"], setting["method"], setting["options"], setting["set"])))
        cells = [span(values["made"]), "yes" if values["is better"] else "no", f"{values['weight']:g}"]
        cells += [
            f"{one['before']:.3f} to {one['after']:.3f}, {span(one)}" for one in (values["dense"], values["hybrid"])
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def by_table(found):
    """What questions by a table are worth beside those by the model, and what they take."""
    lines = [
        "| model, set | by sentences | judged, dense | judged, default search | a question, ms | `ragidx query`, s |",
        "| --- |" + " --- |" * 5,
    ]
    for row in of(["questions"], found):
        setting, values = row["setting"], row["values"]
        name = ", ".join(filter(None, (setting["model"], setting["method"], setting["options"], setting["set"])))
        cells = [f"{values['made']['difference']:+.3f} [{values['made']['low']:+.3f}, {values['made']['high']:+.3f}]"]
        for one in (values["dense"], values["hybrid"]):
            apart = f"{one['difference']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"
            cells.append(f"{one['before']:.3f} to {one['after']:.3f}, {apart}")
        command = values["command_s"]
        cells += [
            f"{values['model_ms']:,.{0 if values['model_ms'] >= 10 else 1}f} to {values['table_ms']:.2g}",
            f"{command['model']:.1f} to {command['table']:.1f}; mini {command['mini']:.1f}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def loads(values):
    """Of each number of clients: milliseconds, and answers a second."""
    for name, load in values.items():
        if isinstance(load, dict) and "p50 ms" in load:
            yield (
                name,
                [f"{load['p50 ms']:.1f}, {load['p95 ms']:.1f}, {load['p99 ms']:.1f}", f"{load['questions/s']:,.0f}"],
            )


def served(found):
    """The service under load, and beside other servers."""
    lines = [
        "| index | in the process, p50 ms | clients | p50, p95, p99 ms | answers/s |",
        "| --- |" + " --- |" * 4,
    ]
    for row in of(["serve"], found):
        setting, values = row["setting"], row["values"]
        name = f"{setting['index']}, {setting['chunks']:,} chunks{', ' + setting['mode'] if setting['mode'] else ''}"
        alone = f"{values['in the process, p50 ms']:.1f}" if "in the process, p50 ms" in values else "-"
        for clients, cells in loads(values):
            lines.append(f"| {name} | {alone} | {clients.split()[0]} | {' | '.join(cells)} |")
    for row in of(["servers"], found):
        setting = row["setting"]
        about = f"{setting['rows']:,} rows of {setting['dimensions']}"
        lines += [
            "",
            f"| {about} | recall@10 | clients | p50, p95, p99 ms | answers/s | CPU, ms | MiB |",
            "| --- |" + " --- |" * 6,
        ]
        for name, values in row["values"].items():
            for clients, cells in loads(values):
                recall = "-" if name == "empty" else f"{values['recall@10']:.3f}"
                about = f"{name} {values['version']} | {recall} | {clients.split()[0]}"
                spent = values[clients].get("CPU ms")
                spent = "-" if spent is None else f"{spent:.2f}"
                lines.append(f"| {about} | {' | '.join(cells)} | {spent} | {values['MiB']:,} |")
    return "\n".join(lines) + "\n"


def index_types(found):
    """Index types beside other engines: a table for each model and number of rows."""
    asked, parts = of(["index types"], found), []
    for model, rows, dim in dict.fromkeys(
        tuple(row["setting"][key] for key in ("model", "rows", "dim")) for row in asked
    ):
        lines = [
            f"| {rows:,} x {dim}, {model} | made | effort | recall by the build | by questions | one, ms |"
            " of 1,000, ms each | built, CPU s | bytes a row |",
            "| --- |" + " --- |" * 8,
        ]
        for row in asked:
            v, setting = row["values"], row["setting"]
            if (setting["model"], setting["rows"]) == (model, rows):
                told = f"{v['told']:.3f}" if "told" in v else ""
                lines.append(
                    f"| {setting.get('index') or setting['engine']} | {v['made']} | {v.get('effort', '')} | {told}"
                    f" | {v['real']:.3f} | {v['one ms']:.2f} | {v['ms a query of 1,000']:.3f} | {v['build CPU s']:,.1f}"
                    f" | {v['bytes a row']:,.0f} |"
                )
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def codes_alone(found):
    """What codes find where they are all that is kept of the vectors."""
    lines = [
        "| vectors | index type | made | bytes a chunk | recall by the build | by questions | coded again | one, ms |",
        "| --- |" + " --- |" * 7,
    ]
    for row in of(["codes alone"], found):
        v, setting = row["values"], row["setting"]
        lines.append(
            f"| {setting['rows']:,} x {setting['dim']}, {setting['model']} | {setting['index'].removesuffix(' alone')}"
            f" | {v['made']} | {v['bytes a row']:,.0f} | {v['told']:.3f} | {v['real']:.3f} | {v['again']:.3f}"
            f" | {v['one ms']:.2f} |"
        )
    return "\n".join(lines) + "\n"


# Page, name of its marks, what makes the tables between them.
PLACES = [
    (ROOT / "docs" / "benchmarks.md", "opening", OPENING),
    (ROOT / "docs" / "benchmarks.md", "figures", markdown),
    (ROOT / "docs" / "indexes.md", "index types", index_types),
    (ROOT / "docs" / "indexes.md", "codes alone", codes_alone),
    (ROOT / "docs" / "query.md", "hybrid", WORD_TABLES["hybrid"]),
    (ROOT / "docs" / "build.md", "words", WORD_TABLES["languages"]),
    (ROOT / "docs" / "gguf.md", "figures", lambda found: "\n\n".join(SENTENCES["gguf"](found)) + "\n"),
    (ROOT / "docs" / "models.md", "unknown", WORD_TABLES["unknown"]),
    (ROOT / "docs" / "endpoint.md", "figures", lambda found: "\n\n".join(SENTENCES["endpoint"](found)) + "\n"),
    (ROOT / "docs" / "tune.md", "figures", tuned),
    (ROOT / "docs" / "train.md", "figures", trained),
    (ROOT / "docs" / "adapt.md", "figures", adapted),
    (ROOT / "docs" / "questions.md", "figures", by_table),
    (ROOT / "docs" / "serve.md", "figures", served),
    (ROOT / "docs" / "evaluate.md", "without labels", synthetic),
]


def write(found):
    """Put the figures into their files."""
    for path, mark, make in PLACES:
        before, _, rest = path.read_text("utf-8").partition(f"<!-- {mark} -->\n")
        after = rest.partition(f"<!-- /{mark} -->")[2]
        path.write_text(f"{before}<!-- {mark} -->\n{make(found)}<!-- /{mark} -->{after}", "utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write(rows())
    else:
        print(markdown(rows()), end="")
