"""regard data check examples/my_data.py:orders
regard compare classification --data examples/my_data.py:orders --arms tfidf,transformer"""

from random import Random

from regard.lab.data.named import DataSet


def read():  # rows of (text, label), or {"train": rows, "validation": rows, "test": rows}
    random = Random(1)
    words = ["late", "broken", "lovely", "quick", "wrong", "perfect", "not", "very", "box", "size"]
    texts = {" ".join(random.choices(words, k=random.randint(6, 12))) for _ in range(1000)}
    bad = ("not lovely", "late")
    return [(x, "bad" if any(b in x for b in bad) else "good") for x in sorted(texts)]


orders = DataSet("1,000 made-up opinions on orders", "classification", read=read)
