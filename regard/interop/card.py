"""The README of an exported model: its data, results and use."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import regard
from regard.core.settings import Settings

USES = {
    "GPT2LMHeadModel": ("AutoModelForCausalLM", "text-generation"),
    "BertForPreTraining": ("AutoModelForPreTraining", "fill-mask"),
    "T5ForConditionalGeneration": ("AutoModelForSeq2SeqLM", "text2text-generation"),
    "MarianMTModel": ("AutoModelForSeq2SeqLM", "translation"),
    "PegasusForConditionalGeneration": ("AutoModelForSeq2SeqLM", "translation"),
}


@dataclass(frozen=True)
class Card:
    """Facts about a model in addition to its settings: data, results, notes."""

    title: str = "A model made with regard"
    trained: Mapping[str, object] = field(default_factory=dict)
    measured: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def text(self, architecture: str, settings: Settings) -> str:
        """Return the README, in markdown with the header that the hub reads.

        >>> from regard.nn.models.settings import GPTSettings
        >>> text = Card("Tiny").text("GPT2LMHeadModel", GPTSettings(width=8))
        >>> print(text.split("---")[1].strip())
        library_name: transformers
        pipeline_tag: text-generation
        tags:
        - regard
        """
        loader, use = USES[architecture]
        lines = ["---", "library_name: transformers", f"pipeline_tag: {use}", "tags:", "- regard"]
        lines += ["---", "", f"# {plain(self.title)}", ""]
        lines += [f"`{architecture}`, written by regard {regard.__version__}.", ""]
        lines += ["```python", f"from transformers import {loader}, AutoTokenizer", ""]
        lines += [f"model = {loader}.from_pretrained(FOLDER)"]
        lines += ["tokenizer = AutoTokenizer.from_pretrained(FOLDER)", "```", ""]
        lines += table("Trained on", self.trained) + table("Measured", self.measured)
        lines += [line for note in self.notes for line in (plain(note), "")]
        return "\n".join(lines + table("Settings", settings.model_dump(mode="json")))


def table(title: str, rows: Mapping[str, object]) -> list[str]:
    """Return the lines of a table of names and values; none without rows."""
    if not rows:
        return []
    body = [f"| {plain(name)} | {plain(value)} |" for name, value in rows.items()]
    return [f"## {title}", "", "| | |", "|---|---|", *body, ""]


def plain(value: object) -> str:
    """Return a value as one line of text, escaped for markdown and HTML."""
    words = " ".join(str(value).split())
    for sign in "\\`*_[]<>|#":
        words = words.replace(sign, f"\\{sign}")
    return words
