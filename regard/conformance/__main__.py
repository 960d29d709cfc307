"""Check every law on every part of regard: ``python -m regard.conformance``.

``--quick`` combines positions with the scaled dot product only, a quarter of all pairs, and checks
every twelfth subject in long texts; ``--seed N`` selects which.
"""

import json
import sys
from collections import Counter

import torch

from regard.conformance.own import own
from regard.conformance.run import kind_of, verdicts


def main() -> int:
    """Print each failure and a line of counts for each kind, or one JSON object with --json.

    Exit code 1 if a law fails.
    """
    torch.set_num_threads(1)
    subjects, outcomes, failures = Counter[str](), Counter[tuple[str, str]](), []
    words = sys.argv[1:]
    quick = "--quick" in words
    seed = int(words[words.index("--seed") + 1]) if "--seed" in words else 0
    for number, subject in enumerate(own(pairs=not quick)):
        kind = kind_of(subject)
        subjects[kind] += 1
        for verdict in verdicts(subject, long=not quick or (number + seed) % 12 == 0):
            outcomes[kind, verdict.outcome] += 1
            if verdict.outcome == "fails":
                failures.append({"what": subject.name, **verdict.json()})
    table = {kind: {"subjects": number} for kind, number in subjects.items()}
    for (kind, outcome), number in outcomes.items():
        table[kind][outcome] = number
    if "--json" in words:
        print(json.dumps({"failures": failures, "kinds": table}, ensure_ascii=False))
    else:
        for failure in failures:
            print(f"{failure['what']}: {failure['law']}: {failure['says']}")
        for kind, row in table.items():
            print(f"{kind}: " + ", ".join(f"{count} {name}" for name, count in row.items()))
        print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
