"""Evaluation of generated answers to questions."""

from collections.abc import Sequence

import numpy as np

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.tasks.evaluation import Evaluation, must_have_examples, wilson
from regard.lab.tasks.writing.evaluation import Text

COMMONEST = "most frequent answer"  # the guess that ignores the question


def answer_evaluation(
    examples: Sequence[Example], texts: Sequence[Text], commonest: str
) -> Evaluation:
    """Evaluate written answers by exact match, with a 95 % Wilson interval over questions.

    ``commonest`` is the most frequent answer in training. Without reference answers there is no
    score. Raises: no questions; only some of them with a reference answer.
    """
    must_have_examples(examples, "questions")
    bare = [example for example in examples if not example.label]
    if bare and len(bare) < len(examples):
        raise RegardError(
            f"{bare[0].source}: this question has no answer, but others do; give all or none"
        )
    correct = np.array([a.text == b.label for a, b in zip(texts, examples, strict=True)])
    same = None if bare else sum(x.label == commonest for x in examples) / len(examples)
    low, high = wilson(int(correct.sum()), len(examples))
    confidence = float(np.mean([text.confidence for text in texts]))
    return Evaluation(
        metric="exact match",
        value=None if bare else float(correct.mean()),
        low=None if bare else low,
        high=None if bare else high,
        examples=examples,
        answers=texts,
        row=Text.row,
        correct=correct,
        per_example=correct.astype(np.float64),
        unit="questions",
        predictions=[text.text for text in texts],
        trivial={} if same is None else {COMMONEST: same},
        exceeds=True if bare else None,
        summary={"commonest": commonest, "baseline": same},
        remark="" if same is None else f"; always answering {commonest!r}: {same:.1%}",
        remarks={COMMONEST: f"always {commonest!r}"},
        facts=[("confidence", f"{confidence:.2%}  (mean; see `regard lab birthplace`)")],
    )
