"""Masks by name are the masks that they name."""

import pytest
import torch

from regard.attention import (
    PATTERNS,
    bigbird,
    causal,
    global_tokens,
    lengths,
    named_mask,
    window,
)
from regard.core.errors import RegardError

N = 150
WHERE = torch.arange(N)


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        ("causal", causal()),
        ("window-8", window(8)),
        ("window-0", window(0)),
        ("dilated-3-5", window(3, 5)),
        ("global-2", global_tokens(2)),
        ("bigbird", bigbird(N)),
        ("bigbird-16", bigbird(N, block=16)),
        ("window-8+global-2", window(8) | global_tokens(2)),
        ("window-1+dilated-3-5+global-2", window(1) | window(3, 5) | global_tokens(2)),
    ],
)
def test_a_name_is_its_mask(name, mask):
    named = named_mask(name, N)
    assert torch.equal(named.allows(WHERE, WHERE), mask.allows(WHERE, WHERE))
    both = (named & lengths([N, 9, 0])).allows(WHERE, WHERE)
    assert torch.equal(both, mask.allows(WHERE, WHERE) & lengths([N, 9, 0]).allows(WHERE, WHERE))


def test_none_is_no_mask():
    assert named_mask("none") is None


@pytest.mark.parametrize("name", PATTERNS)
def test_the_examples_in_the_error_are_patterns(name):
    for example in PATTERNS[name].examples:
        assert named_mask(example, N) is not None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("windo-8", "no pattern is called 'windo-8'; did you mean window-64? Choose one of"),
        ("window", "no pattern is called 'window'; did you mean window-64"),
        ("window-8-2", "did you mean window-64"),
        ("window-x", "did you mean window-64"),
        ("dilated-8", "did you mean dilated-64-2"),
        ("window-8+glob-2", "no pattern is called 'glob-2'; did you mean global-4"),
        ("", "no pattern is called ''; choose one of none, causal, window"),
        ("none+causal", "no pattern is called 'none'"),
        ("dilated-8-0", "a size of at least 0 and a step of at least 1, not 8 and 0"),
        ("bigbird-0", "block=0 must be at least 1"),
    ],
)
def test_errors_list_what_there_is(name, says):
    with pytest.raises(RegardError) as error:
        named_mask(name, N)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_bigbird_needs_a_length():
    with pytest.raises(RegardError, match="length="):
        named_mask("bigbird")
