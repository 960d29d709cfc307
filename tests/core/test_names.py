"""The grammar of names: layers, sums, options and files of a user's own."""

import pytest

from regard.attention import NORMALIZERS
from regard.core.errors import RegardError
from regard.core.names import at_layer, is_part, layers_of, parts_of, row_of
from regard.core.trusted import trust

SOURCE = """
from regard.attention import Normalizer

class Power(Normalizer):
    options = {"power": 1}

    def __init__(self, heads=None, power=2):
        super().__init__()
        self.power = power
"""


def test_names_that_plus_joins(tmp_path):
    folder = tmp_path / "c++"
    folder.mkdir()
    (folder / "own.py").touch()
    one = f"{folder}/own.py:Mine"
    assert parts_of(one) == [one]
    assert parts_of("window-4 + own.py:near-2") == ["window-4", "own.py:near-2"]


def test_what_is_a_part():
    assert [is_part(x) for x in ("a.py:B", "C:\\a.py:B", "a.py", "dot", "x:y")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_names_are_repeated_over_a_stack():
    assert [at_layer("a*2/b", layer) for layer in range(4)] == ["a", "a", "b", "a"]
    assert layers_of("my/folder/own.py:X") == ["my/folder/own.py:X"]
    with pytest.raises(RegardError, match=r"'a\*x' of 'a\*x/b' must be a name and a number"):
        layers_of("a*x/b")


def test_the_longest_known_name_comes_before_the_options():
    assert row_of("alibi-signed-2", ["alibi", "alibi-signed"]) == ("alibi-signed", ["2"])
    assert row_of("alibi-2", ["alibi", "alibi-signed"]) == ("alibi", ["2"])
    assert row_of("ali-2", ["alibi", "alibi-signed"]) == ("ali-2", [])


def test_a_part_of_a_file_has_options(tmp_path):
    path = tmp_path / "my-own.py"
    path.write_text(SOURCE)
    trust(path)
    for name in (f"{path}:Power-3", f"{path}:Power-power-3"):
        kind, options = NORMALIZERS.named(name)
        assert (kind.__name__, options) == ("Power", {"power": 3})
    assert not NORMALIZERS.is_row(f"{path}:Power-3")
    with pytest.raises(RegardError, match="may be followed by -power-NUMBER"):
        NORMALIZERS.named(f"{path}:Power-3-4")
