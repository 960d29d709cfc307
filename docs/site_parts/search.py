"""Full-text search in English and Chinese, in the browser, without a word list.

Sphinx splits Chinese with an extra package, and not at all without it. Here every run of Han
characters is indexed by its single characters and its pairs of neighbours, and the browser splits
a query in the same way, so that any two characters that stand together are found.
"""

import re
from itertools import pairwise

from sphinx.search.en import SearchEnglish

HAN = r"\u3400-\u9fff"
RUNS = re.compile(rf"[{HAN}]+|[^\W{HAN}]+")


class SearchBoth(SearchEnglish):
    """Sphinx's English search that also knows Chinese."""

    lang = "en-zh"
    language_name = "English"  # names the stemmer in the browser
    js_splitter_code = """
var splitQuery = (query) => query
  .match(/[\\u3400-\\u9fff]+|[^\\u3400-\\u9fff\\s\\p{P}\\p{S}]+/gu)?.flatMap((run) =>
    /[\\u3400-\\u9fff]/.test(run) && run.length > 2
      ? [...run].slice(1).map((_, i) => run.slice(i, i + 2))
      : [run]) ?? [];
"""

    def split(self, input: str) -> list[str]:
        """Return Latin words, and the characters and neighbouring pairs of Han text.

        >>> SearchBoth({}).split("注意力 in 3 words")
        ['注', '意', '力', '注意', '意力', 'in', '3', 'words']
        """
        words = []
        for run in RUNS.findall(input):
            if re.match(f"[{HAN}]", run):
                words += [*run, *map("".join, pairwise(run))]
            else:
                words.append(run)
        return words
