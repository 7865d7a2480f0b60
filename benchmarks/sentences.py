"""Single sentences of docs/benchmarks.md, and the table of installations, for `table.py`."""

from __future__ import annotations


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
