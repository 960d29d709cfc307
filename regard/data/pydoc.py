"""The help text that ships inside Python: English prose about the language, on every machine.

The topics of ``help()`` (``pydoc_data.topics``, some 700,000 characters). They repeat each other:
a paragraph that stood in an earlier topic is left out of a later one.
"""

PASSAGE = 1_000  # characters of a document, or the first paragraph's end after them


def documents() -> list[str]:
    """Passages of some 1,000 characters, whole paragraphs, in the order of the topics' names.

    They are those of the running Python: another version has others.

    >>> len(documents()) > 300
    True
    """
    from pydoc_data.topics import topics

    seen: set[str] = set()
    found: list[str] = []
    for name in sorted(topics):
        waiting: list[str] = []
        for paragraph in topics[name].strip().split("\n\n"):
            text = paragraph.strip("\n")
            if not text.strip() or text in seen:
                continue
            seen.add(text)
            waiting.append(text)
            if sum(map(len, waiting)) >= PASSAGE:
                found.append("\n\n".join(waiting))
                waiting = []
        if waiting:
            found.append("\n\n".join(waiting))
    return found
