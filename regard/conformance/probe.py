"""Call a module to find out what its masks mean and which words change its outputs."""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.conformance.adopted import Adopted, of_memory, parameters_of
from regard.conformance.conventions import (
    ADDITIVE,
    CONVENTIONS,
    HIDDEN,
    KEYS,
    LENGTHS,
    MAY_LOOK,
    MEANINGS,
    PAIRS,
    REGARD,
    SHAPES,
    Form,
)
from regard.conformance.law import LONG

BATCH, N = 2, 5  # of the probing calls
#: Masks that must have an effect, if a module has no other.
STANDARD = ("mask", "attention_mask", "attn_mask", "key_padding_mask", "valid_lens")
SILENT = ("head_mask", "output_mask", "cross_attn_head_mask", "layer_head_mask", "max_length")


class Probe:
    """Calls a module to find out what its arguments mean."""

    def __init__(self, adopted: Adopted, module: nn.Module) -> None:
        self.adopted, self.module = adopted, module
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.x = torch.randn(BATCH, N, adopted.width)
            self.others = torch.randn(BATCH, N, adopted.width)

    def output(
        self, x: Tensor, given: Mapping[str, Any] | None = None, allowed: Tensor | None = None
    ) -> Tensor | None:
        """Return the output with these arguments; None if the module refuses them.

        What a call stores in the module's buffers is undone.
        """
        kept = [(of, name, x, x.clone()) for of in self.module.modules()
                for name, x in of._buffers.items() if x is not None]  # fmt: skip
        try:
            with torch.no_grad():
                answer = self.adopted.run(self.module, x, None, allowed, given=given)
                return self.adopted.output(answer, x).float()
        except Exception:  # whatever a user's code raises
            return None
        finally:
            for of, name, buffer, before in kept:
                of._buffers[name] = buffer.copy_(before)

    def changes(
        self, given: Mapping[str, Any] | None = None, allowed: Tensor | None = None
    ) -> Tensor | None:
        """Return how much each word j changes the output i of its text, (b, i, j), or None."""
        plain = self.output(self.x, given, allowed)
        if plain is None or plain.shape[:2] != (BATCH, N):
            return None
        columns = []
        for j in range(N):
            changed = self.x.clone()
            changed[:, j] = self.others[:, j]
            other = self.output(changed, given, allowed)
            if other is None:
                return None
            gap = (other - plain).nan_to_num(0.0).abs().flatten(2).amax(-1)
            columns.append(gap)
        return torch.stack(columns, -1)

    def hides(self, what: str) -> bool:
        """Return whether the function of a call hides keys or pairs that are not allowed."""
        allowed = tables(Form(MAY_LOOK, "b m" if what == KEYS else "n m"))
        found = self.changes(allowed=allowed)
        others = ~torch.eye(N, dtype=torch.bool)
        return found is not None and bool(
            found[~allowed & others].max() < 1e-3 * found[allowed & others].max()
        )

    def longest(self, most: int) -> int | None:
        """Return the longest text that the module takes; None for as long as those of the laws."""

        def takes(n: int) -> bool:
            return self.output(torch.randn(1, n, self.adopted.width)) is not None

        least, most = N, min(most, max(LONG)) + 1
        if takes(most - 1):
            return None if most > max(LONG) else most - 1
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if takes(middle) else (least, middle)
        return least

    def is_causal(self) -> bool:
        """Return whether, without masks, no word changes an earlier output."""
        found = self.changes()
        return found is not None and bool((found.triu(1) == 0).all() and (found.tril(-1) > 0).any())

    def has_flag(self) -> bool:
        """Return whether the argument for a causal mask makes the module causal."""
        found = self.changes({self.adopted.roles["causal"]: True})
        return found is not None and bool((found.triu(1) == 0).all())

    def find_memory(self) -> None:
        """Forget the memory, and masks for it, if the module refuses or ignores it."""
        roles, plain = self.adopted.roles, None
        if "memory" not in roles or self.adopted.needs_memory:
            return
        with contextlib.suppress(Exception), torch.no_grad():  # whatever a user's code raises
            answers = [self.adopted.run(self.module, self.x, y, None)
                       for y in (self.x, self.others)]  # fmt: skip
            plain, other = (self.adopted.output(answer, self.x) for answer in answers)
        if plain is None or torch.equal(plain, other):
            roles.pop("memory")
            for name in [name for name in self.adopted.forms if of_memory(name)]:
                self.adopted.forms.pop(name)

    def uses_positions(self) -> bool:
        """Return whether the order of words matters, or words are read by numbers."""
        if self.adopted.modes == (True,):
            return True
        turned = torch.tensor([1, 3, 0, 4, 2])
        plain, other = self.output(self.x), self.output(self.x[:, turned])
        if plain is None or other is None:
            return True
        plain, other = plain.nan_to_num(0, 0, 0), other.nan_to_num(0, 0, 0)
        return not torch.allclose(other, plain[:, turned], atol=1e-4 * float(plain.abs().max()))

    def find_forms(self, given: Mapping[str, Form]) -> None:
        """Find the form of each mask of words."""
        adopted = self.adopted
        for name in parameters_of(self.module):
            if name in given:
                adopted.forms[name] = given[name]
                continue
            if not is_mask(name) or name in adopted.roles.values():
                continue
            stated = CONVENTIONS.get(adopted.convention, {}).get(name)
            if of_memory(name):
                if stated:
                    adopted.forms[name] = stated
                continue
            form = self.form_of(name, stated)
            if form:
                adopted.forms[name] = form
            elif name not in SILENT:
                adopted.unread.append(name)

    def form_of(self, name: str, stated: Form | None) -> Form | None:
        """Return the form that hides exactly the hidden words; None if none has an effect."""
        lowest = self.adopted.convention == "huggingface"
        first = [HIDDEN] if "padding" in name else []
        meanings = [*first, *(meaning for meaning in MEANINGS if meaning not in first)]
        forms = [Form(meaning, shape, lowest and meaning == ADDITIVE)
                 for shape in SHAPES for meaning in meanings]  # fmt: skip
        forms = [Form(LENGTHS, "b"), *forms] if "len" in name else forms
        forms = [Form(REGARD, "b n m"), *forms] if name == "mask" and not stated else forms
        nearest, least, taken = None, 0.2, list[tuple[Form, float]]()
        free = self.changes()
        for form in dict.fromkeys([*([stated] if stated else []), *forms]):
            leak = self.leak(name, form, free)
            if leak is None:
                continue
            taken.append((form, leak))
            if leak < 1e-3:
                return form
            if leak < least:
                nearest, least = form, leak
        if stated or nearest:
            return stated or nearest
        own = any(type(part).__module__.startswith("regard.") for part in self.module.modules())
        left = [form for form, leak in taken if form.meaning != REGARD or own or len(taken) == 1]
        wrong = [form for form, leak in taken if form in left and leak < math.inf]
        alone = [word for word in parameters_of(self.module) if is_mask(word)] == [name]
        if name in STANDARD and (wrong or alone):  # a fault that the laws will tell
            return next(iter(wrong or left), None)
        return None

    def leak(self, name: str, form: Form, free: Tensor | None) -> float | None:
        """Return how much hidden words change outputs, over how much others do.

        None if the module refuses the form; ∞ if it has no effect.
        """
        allowed = tables(form)
        mask = form.write(allowed, self.adopted.heads, torch.float32)
        found = self.changes({name: mask})
        if found is None or free is None or found.shape != free.shape:
            return None
        others = ~torch.eye(N, dtype=torch.bool)
        seen, unseen = found[allowed & others], found[~allowed & others]
        known = free > 0
        if not bool((seen > 0).any()) or not bool((known & ~allowed & others).any()):
            return math.inf
        return float(unseen.max() / seen.max())


def tables(form: Form) -> Tensor:
    """Return allowed pairs (b, n, m) to try a form with; blocks, since layers join paths."""
    allowed = torch.ones(BATCH, N, N, dtype=torch.bool)
    if form.meaning == LENGTHS:
        allowed[0, :, 3:] = False
    elif form.what == KEYS:
        allowed[0, :, [1, 3]] = False
    else:
        blocks = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
        blocks = blocks[:1].expand(BATCH, N) if form.what == PAIRS else blocks
        allowed = blocks[:, :, None] == blocks[:, None, :]
    return allowed


def is_mask(name: str) -> bool:
    """Return whether an argument is a mask by its name."""
    return any(part in name.lower() for part in ("mask", "len", "padding"))
