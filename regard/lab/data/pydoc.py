"""The help text that ships with Python: English prose that is available on every machine.

The topics of ``help()`` (``pydoc_data.topics``, some 700,000 characters). They repeat each other:
a paragraph that occurred in an earlier topic is dropped from a later one.
"""

PASSAGE = 1_000  # minimum characters of a document, which ends with a paragraph


def documents() -> list[str]:
    """Return passages of about 1,000 characters (complete paragraphs), ordered by topic name.

    They differ between Python versions.

    >>> len(documents()) > 300
    True
    """
    from pydoc_data.topics import topics

    seen: set[str] = set()
    passages: list[str] = []
    for name in sorted(topics):
        waiting: list[str] = []
        for paragraph in topics[name].strip().split("\n\n"):
            text = paragraph.strip("\n")
            if not text.strip() or text in seen:
                continue
            seen.add(text)
            waiting.append(text)
            if sum(map(len, waiting)) >= PASSAGE:
                passages.append("\n\n".join(waiting))
                waiting = []
        if waiting:
            passages.append("\n\n".join(waiting))
    return passages
