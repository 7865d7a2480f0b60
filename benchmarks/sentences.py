"""Single sentences of docs/benchmarks.md, and the table of installations, for `table.py`."""

from __future__ import annotations


def first_answer(row):
    """One sentence on a folder to its first answer, beside other tools."""
    v, setting = row["values"], row["setting"]
    first, second, semble, again, bm25s, ripgrep = (
        v[name]["median"]
        for name in (
            "ragidx build and query",
            "ragidx query",
            "semble search",
            "semble search again",
            "bm25s",
            "ripgrep",
        )
    )
    return (
        f"From {setting['files']} Markdown files ({setting['corpus_bytes'] / 1e6:.1f} MB) to the first answer, whole"
        f" processes: `ragidx build` and `ragidx query` {first:.2f} s, and {second:.2f} s for the next question; semble"
        f" {semble:.2f} s, then {again:.2f} s (with a table of random numbers, half as large as its own from a"
        f" hub); a script with bm25s {bm25s:.2f} s; the lines with one word by ripgrep {ripgrep:.3f} s."
    )


def by_decoder(row):
    """One sentence on a decoder's speed against transformers alone."""
    v, setting, ratio = row["values"], row["setting"], row["values"]["ratio"]
    none = "; no other number format was faster on this processor" if setting["dtype"] == "float32" else ""
    return (
        f"{setting['model']} with {setting['method']}, {setting['texts']} SciFact documents of up to 700 characters,"
        f" against transformers alone, float32, by length in batches of 8: **{ratio['median']:.2f}x**"
        f" ({ratio['min']:.2f} to {ratio['max']:.2f}, {ratio['runs']} runs in turns; {setting['dtype']},"
        f" {v['ragidx tokens/s']:,} tokens/s, {setting['threads']} threads{none})."
    )


def by_format(row):
    """Sentences on number formats, and on where a decoder's time goes."""
    v, setting = row["values"], row["setting"]
    rates = {name: v[f"{name} tokens/CPU s"] for name in v["least cosine"]}
    shown = ", ".join(
        f"{name} {rate['median']:,} ({rate['min']:,} to {rate['max']:,}, cosine {v['least cosine'][name]:.4f})"
        for name, rate in rates.items()
    )
    prefixes = ", ".join(f"{share:.1%} with {name}" for name, share in v["share of the template's prefix"].items())
    found = (
        f"Tokens a second of one core, {setting['model']} with {setting['method']}, in turns, median of"
        f" {rates['float32']['runs']}: {shown}. Of float32's time {v['share of matrix products']:.0%} are matrix"
        f" products and {v['share of attention']:.0%} attention; of its tokens {v['share of padding']:.1%} are padding,"
        f" and the beginning that all prompts share is {prefixes}."
    )
    if max(rates, key=lambda name: rates[name]["median"]) != "float32":
        return found
    return (
        f"{found} So on a processor like this one neither another format, nor batches without padding, nor keeping that"
        f" beginning makes {setting['method']} much faster."
    )


def folder(row):
    """One sentence on a folder as people have them."""
    v, left = row["values"], row["setting"]["left_out"]
    named = ", ".join(f"{count} {ending}" for ending, count in left.items())
    return (
        f"A folder of {v['files']} files of 40 kinds, as packages install them: {v['files_taken']} files"
        f" and {v['bytes_taken'] / v['bytes']:.0%} of the bytes give {v['documents']:,} documents, read in"
        f" {v['seconds']} s."
        f" Files without text or of no known format are left out: {named}."
    )


def spectrum(row):
    """One sentence on the decomposition of a head."""
    values, shape = row["values"], row["setting"]
    size = f"{shape['rows']:,} x {shape['width']:,}, {shape['dtype']}, {shape['threads']} threads"
    first, cached = values["first s"]["median"], values["cached s"]["median"]
    sentence = f"The spectrum of a head of {size}: {first:.1f} s and {values['peak MiB']:,} MiB, {cached:.2f} s cached"
    if "svd s" not in values:
        return f"{sentence}."
    return (
        f"{sentence}; `torch.linalg.svd` of the whole matrix in float32 takes {values['svd s']['median']:.1f} s and"
        f" {values['svd peak MiB']:,} MiB (medians of {values['svd s']['runs']} runs)."
    )


def installs(found):
    """A line an installation."""
    lines = ["| `pip install`, PyTorch for CPUs | commit | seconds | MiB | packages |", "| --- |" + " --- |" * 4]
    for row in found:
        v, s = row["values"], row["setting"]
        lines.append(f"| `'.[{s['extras']}]'` | {s['tree']} | {v['seconds']} | {v['MiB']:,} | {v['packages']} |")
    return "\n".join(lines)


def gguf(found):
    """A paragraph a GGUF file: its steps, transformers' own loader, vectors."""
    return [_of_gguf(row["values"], row["setting"]) for row in found if row["figure"] == "decoder from a GGUF file"]


def _of_gguf(v, setting):
    seconds = ", ".join(f"{step} {v[f'{step} s']['median']:.1f} s" for step in ("header", "tokenizer", "weights"))
    apart = max(one["largest difference"] for one in v["vectors"].values())
    cosine = min(one["least cosine"] for one in v["vectors"].values())
    differ = f"differ by at most {apart:.0e} from (least cosine {cosine:.6f})" if apart else "are equal to"
    return (
        f"{setting['model']} from a GGUF file of {setting['file_mib']:,} MiB, on one thread: {seconds}, the spectrum of"
        f" its head {v['spectrum s']['median']:.1f} s (medians of {v['weights s']['runs']} runs), each in a process of"
        f" at most {max(v['peak MiB'].values()):,} MiB, PyTorch included. transformers' own loader takes"
        f" {v['transformers s']:.0f} s and {v['transformers peak MiB']:,} MiB (one run); {v['equal tensors']} of"
        f" {v['tensors']} tensors are equal bit for bit. The unit vectors of {setting['texts']} texts by"
        f" {', '.join(v['vectors'])} {differ} those of the same weights in safetensors."
    )


def endpoint(found):
    """A sentence on the speed of a server's model."""
    figure = "endpoint throughput against one request a text"
    return [_of_endpoint(row["values"], row["setting"]) for row in found if row["figure"] == figure]


def _of_endpoint(v, setting):
    ratios = "; ".join(
        f"**{one['ratio']['median']:.1f}x** ({one['ratio']['min']:.1f} to {one['ratio']['max']:.1f}) where the server"
        f" waits {delay} before it answers, {one['ragidx texts/s']:,} texts/s"
        for delay, one in v.items()
    )
    return (
        f"Endpoint on the same machine, a small server in Python ({setting['dim']} dimensions), {setting['texts']}"
        f" texts of {setting['words']} words, {setting['request_texts']} a request and {setting['at_once']} requests at"
        f" once, against one request a text, one after the other: {ratios} (medians of"
        f" {v['0 ms']['ratio']['runs']} runs in turns)."
    )
