"""Film sentences: real ones, beside generated ones whose label depends on word order.

The real sentences are 1,500 negative and 1,500 positive ones of the sentence polarity dataset v1.0:
Pang and Lee, "Seeing stars", ACL 2005, CC BY 4.0, chosen by chance from those of 5 to 30 words. A
bag of words is nearly as good as any model of this size on them. The generated ones are those of
`regard.lab.data.synthetic`, of which a bag of words labels three quarters.
"""

import gzip
from importlib.resources import files

from regard.lab.data.examples import Example
from regard.lab.data.synthetic import reviews

REAL, GENERATED = "film-sentences/real", "film-sentences/generated"
SEED = 2005
TRAIN = {REAL: 2000, GENERATED: 2000}
TEST = {REAL: 1000, GENERATED: 500}


def film_sentences() -> dict[str, list[Example]]:
    """Return the sentences by part; `Example.source` begins with their kind.

    >>> parts = film_sentences()
    >>> {part: len(rows) for part, rows in parts.items()}
    {'train': 4000, 'test': 1500}
    >>> parts["train"][1].label, parts["train"][1].source
    ('positive', 'film-sentences/real:2')
    """
    stored = files("regard.lab.data").joinpath("film_sentences.tsv.gz").read_bytes()
    lines = gzip.decompress(stored).decode().splitlines()[1:]
    pairs = [line.split("\t") for line in lines]
    rows = {
        REAL: [Example(text, label, f"{REAL}:{row}") for row, (text, label) in enumerate(pairs, 1)],
        GENERATED: reviews(TRAIN[GENERATED] + TEST[GENERATED], SEED, name=GENERATED),
    }
    return {
        "train": [row for kind, count in TRAIN.items() for row in rows[kind][:count]],
        "test": [row for kind, count in TEST.items() for row in rows[kind][-count:]],
    }
