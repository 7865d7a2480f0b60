"""What the words of paths add to a search by words: a folder of 40 notes, a question for each, with and without names.

    python benchmarks/names.py [--evalset DIR/scifact]

Half of the questions have a word that is only in the name of the file or of its folder, as people ask for notes; the
other half are answered by the text, every second of them with a word of another note's path in it. "Without" is the
same notes in one folder under numbers. Every question has one right note; hits are chunks of whole notes. An evaluation
set, whose ids are no paths, must have the figure that it had before paths were searched.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from figures import record

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.pipelines.experiments.evaluate.measures import ndcg

# path | text | question: by the name of the file, by that of the folder, by the text, by it with a word of another path
NOTES = """
health/dentist.md | Tuesday at nine, second floor. Bring the card and the pictures from last year. | dentist
health/tuesday.md | The knee is better. Stairs still hurt in the morning, the exercises help. | health morning exercises
health/pharmacy.md | Two boxes of ibuprofen and plasters, the receipt is for the insurance. | receipt ibuprofen
health/glasses.md | Minus two on the left, minus one and a half on the right; the old frame stays. | frame for the books
garden/compost.md | Turn it every two weeks, keep it damp, no lemon peel. | compost
garden/april.md | Sow in rows, water in the evening, cover them when it freezes. | garden water
garden/tools.md | The spade is at the neighbour's. Oil the shears before winter. | spade at the neighbour
garden/bees.md | Two hives on the roof, honey in July, the smoke keeps them calm. | honey from the roof
travel/lisbon.md | Tram 28 in the morning, custard tarts after it, the flat is near the castle. | lisbon
travel/packing.md | Passport, charger, rain coat, the small camera, plasters. | travel charger camera
travel/train.md | Seats 41 and 42, platform changes at Lyon, eight minutes for it. | platform at Lyon
travel/visa.md | Photograph and two copies of the contract; the office closes at noon. | contract copies for the bank
car/inspection.md | New brake pads in front, the lamp at the back works again, two years. | inspection
car/march.md | It was 412 in all, oil and filters, they wash it for nothing. | car oil
car/tyres.md | Winter ones are in the cellar, pressure 2.4 in front. | pressure winter cellar
car/lease.md | Thirty-six months, fifteen thousand kilometres a year, the end is in May. | kilometres to the concert
house/boiler.md | It drops under one bar each week; he comes on Friday and looks at the valve. | boiler
house/friday.md | White for the kitchen, grey for the hall, two coats, ten litres. | house coats litres
house/roof.md | Three tiles came down in the storm, the gutter on the north side leaks. | tiles storm gutter
house/keys.md | The spare one is with Anna, the cellar has its own. | spare at the club with Anna
school/parents.md | Thursday at seven in the hall. Cake from us, chairs from the others. | parents
school/monday.md | Fractions again, and ten words of French; the bag is too heavy. | school words bag
school/trip.md | Boots, a packed lunch and seven euros; the bus leaves at eight. | boots and lunch for the bus
school/swimming.md | The badge is sewn on, the next test is with a dive of two metres. | badge for the trip
taxes/donations.md | Three receipts, 240 together, the museum's is missing. | donations
taxes/june.md | She wants the bills for the desk and the train until the tenth. | taxes desk bills
taxes/bank.md | The interest of both accounts, statement 12 is the one that counts. | interest of accounts
taxes/refund.md | They will pay 318 back in August, the letter is in the blue folder. | blue folder for the parents
cooking/lasagne.md | Forty minutes, the last ten without a lid. Nutmeg in the white sauce. | lasagne
cooking/sunday.md | Soak them overnight, one onion, bay leaf, and salt at the end alone. | cooking onion salt
cooking/bread.md | Flour 500, water 350, leave it in the cold for a day, oven at 250. | flour in the cold oven
cooking/jam.md | One to one with sugar, lemon, five minutes at the boil. | sugar from the pharmacy
music/choir.md | Tenors stand on the left now, the concert moved to the ninth. | choir
music/lesson.md | Scales in thirds, slower, and count aloud in the second part. | music count slower
music/strings.md | The A broke again; light ones, and a new bridge from the shop in the hall. | bridge from the shop
music/concert.md | Row 7, seats in the middle, doors at seven, no camera. | doors at the train
books/borrowed.md | The atlas is due on the third, the other two can be kept until May. | borrowed
books/next.md | The one about whales, then the Russian one, if the winter is long. | books winter
books/club.md | At Anna's, each brings a page to read aloud, wine from Tom. | read aloud at Anna's with wine
books/shelf.md | Two metres of pine, screws in the drawer, history goes at the top. | pine for the house
"""


def asked(folder, notes):
    """nDCG@10, whether the note is first, and whether it is found at all, of each question; by words, and hybrid."""
    for path, text in notes:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    index = folder.with_name(f"{folder.name}-index")
    ragidx.build(folder, index)
    found = ragidx.Index(index)
    for mode in ("lexical", "hybrid"):
        hits = [[hit.doc_id for hit in found.search(question, 10, mode=mode)] for question in QUESTIONS]
        right = zip(hits, notes, strict=True)
        yield mode, [(ndcg(ids, {path: 1}), path in ids[:1], path in ids) for ids, (path, _) in right]


def of_set(folder, index):
    """nDCG@10 of an evaluation set by words alone, whole documents."""
    ragidx.build(folder, index, chunks=ragidx.ChunkSpec(size=None))
    found, queries = ragidx.Index(index), load_queries(folder)
    hits = {query: found.search(queries[query], 10, mode="lexical") for query in load_qrels(folder)}
    return np.mean([ndcg([hit.doc_id for hit in hits[query]], judged) for query, judged in load_qrels(folder).items()])


ROWS = [[part.strip() for part in line.split("|")] for line in NOTES.strip().splitlines()]
QUESTIONS = [question for _, _, question in ROWS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalset", type=Path)
    evalset = parser.parse_args().evalset
    named = [(path, text) for path, text, _ in ROWS]
    numbered = [(f"notes/{number}.md", text) for number, (_, text) in enumerate(named)]
    by_name = np.arange(len(ROWS)) % 4 < 2
    with tempfile.TemporaryDirectory() as temporary:
        for label, notes in (("with", named), ("without", numbered)):
            for mode, values in asked(Path(temporary) / label, notes):
                parts = {"all": np.array(values, float)}
                parts |= {"by name": parts["all"][by_name], "by text": parts["all"][~by_name]}
                figures = {
                    f"{measure}, {part}": round(float(table[:, column].mean()), 4)
                    for part, table in parts.items()
                    for column, measure in enumerate(("nDCG@10", "first", "R@10"))
                }
                record("words of paths", figures, names=label, mode=mode, questions=len(ROWS))
        if evalset is not None:
            figures = {"nDCG@10": float(of_set(evalset, Path(temporary) / "set"))}
            record("words of paths", figures, names="with", mode="lexical", index=evalset.name)


if __name__ == "__main__":
    main()
