"""The tests of the second circle, which `make deep` runs.

The first circle, plain `pytest`, has every part and every law once. The second adds whole tables,
graphs of torch.compile, models of Hugging Face, launchers and other processes, pages in a browser,
exports, labs from end to end and the benchmarks.

Of a table with several axes, such as score × position × kernel, the first circle has cells in which
each pair of values occurs; of two axes, cells in which each value occurs. The cells turn with the
day; ``REGARD_DAY`` repeats those of another one.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any

#: Files and folders, and parts of a test's name, whose tests belong to the second circle.
DEEP = (
    "benchmarks/", "tests/benchmarks/",
    # graphs, exports
    "tests/attention/test_graphs", "tests/nn/models/test_graphs", "tests/lab/runs/test_onnx",
    "tests/lab/runs/test_sentence_folder",
    "::test_compiled_strips_are_the_eager_ones",
    "tests/lab/runs/test_export", "tests/interop/test_ctranslate2", "tests/interop/test_marian",
    # models of Hugging Face
    "tests/interop/encoders", "tests/interop/tiny", "tests/analysis/test_observe_peers",
    "tests/interop/test_huggingface", "tests/interop/test_attention_interface",
    "tests/interop/test_eager", "tests/interop/test_pretrained", "tests/interop/test_hub",
    "tests/interop/test_docs", "tests/interop/test_sentences_peers",
    "tests/interop/test_tokenizer_files",
    "tests/lab/data/test_encoder_tokenizer", "tests/lab/runs/test_encoder",
    "tests/lab/web/test_pretrained", "::test_it_is_the_attention_of_deberta",
    "::test_speeds_are_those_of_transformers",
    # files and trackers of other packages
    "tests/lab/data/test_arrow", "tests/lab/data/test_text_files", "tests/lab/runs/test_track",
    "::test_an_s3_server_is_read_like_a_disk", "parquet",
    # laws of other packages and of regard's own command, from end to end
    "tests/conformance/test_foreign", "tests/conformance/test_peers",
    "tests/conformance/test_regard",
    # processes and launchers
    "tests/attention/kernels/triton_targets", "regard/attention/kernels/triton/kernels",
    "tests/attention/kernels/test_triton", "tests/attention/kernels/test_threads",
    "tests/attention/test_pickling", "tests/training/test_ranks",
    "tests/training/test_precision_memory", "tests/lab/studies/test_launch",
    "tests/lab/studies/test_tune", "tests/lab/cli/test_launching", "tests/lab/cli/test_completion",
    "::test_with_processes_the_run_of_a_killed_worker_goes_on", "::test_ctrl_c_ends_the_workers",
    "::test_a_file_that_is_trusted_by_name_runs_in_another_process",
    "::test_a_misspelt_name_is_told_before_torch_is_loaded",
    "tests/lab/web/test_process", "tests/lab/web/test_proxy", "tests/lab/web/test_connections",
    # a browser
    "tests/lab/web/test_page", "tests/lab/web/test_panels", "tests/lab/web/test_hostile",
    "tests/lab/web/test_explorer", "tests/lab/reports/test_browser", "::test_a_frame_is_as_high",
    # from end to end
    "tests/test_newcomer", "tests/test_examples", "tests/test_site", "from_end_to_end",
    "kernel_regression/test_lab.py", "::test_settings_are_searched_on_request",
    "::test_compare_makes_the_comparison_of_the_command", "::test_speed_is_beside_scaled_dot",
    "::test_a_small_sweep_with_a_pretrained_arm_elsewhere",
    "::test_a_rehearsal_forecasts_every_arm",
    "::test_translators_are_compared_by_bleu[2]",
    "softmax_gradient/test_lab.py::test_the_lab", "exploration/test_lab.py::test_the_lab",
)  # fmt: skip
#: Tests that stay in the first circle although their file is above.
SMOKE = (
    "tests/lab/web/test_page.py::test_what_is_typed_is_answered",
    "tests/test_examples.py::test_lines_and_commands",
    "tests/lab/labs/test_reverse.py", "kernel_regression/test_lab.py::test_on_the_built_in_points",
)  # fmt: skip
#: Tables of at most as many cells stay whole.
FEW = 12
_DEEP, _SMOKE = (re.compile("|".join(map(re.escape, names))) for names in (DEEP, SMOKE))


def is_deep_file(path: str) -> bool:
    """Return whether all tests of a file belong to the second circle."""
    whole = any(path.startswith(name) for name in DEEP if "/" in name)
    return whole and not any(name.partition("::")[0].startswith(path) for name in SMOKE)


def is_deep(nodeid: str) -> bool:
    """Return whether a test belongs to the second circle.

    >>> is_deep("tests/lab/studies/test_tune.py::test_x"), is_deep("tests/core/test_errors.py")
    (True, False)
    """
    return bool(_DEEP.search(nodeid)) and not _SMOKE.search(nodeid)


def beyond(items: Iterable[Any], day: int) -> Iterator[Any]:
    """Yield the cells of tables that the first circle leaves to the second."""
    tables: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and len(item.callspec.params) > 1:
            tables[item.nodeid.partition("[")[0]].append(item)
    for name, cells in tables.items():
        if len(cells) > FEW:
            rows = [values(item.callspec) for item in cells]
            kept = covering(rows, Random(f"{name} {day}"))
            yield from (item for i, item in enumerate(cells) if i not in kept)


def values(callspec: Any) -> dict[str, str | int]:
    """Return the value of each parameter of a cell, or its index if it is no plain value."""
    return {
        name: str(value) if isinstance(value, str | int | float) else callspec.indices[name]
        for name, value in callspec.params.items()
    }


def covering(rows: Sequence[Mapping[str, str | int]], chance: Random) -> set[int]:
    """Return rows in which each pair of values occurs; of two axes, each value.

    >>> cells = [{"a": a, "b": b, "c": c} for a in range(3) for b in range(3) for c in range(3)]
    >>> len(covering(cells, Random(0))) < 18
    True
    """
    width = 1 if len(rows[0]) == 2 else 2
    parts = [set(combinations(sorted(row.items()), width)) for row in rows]
    order, kept, seen = chance.sample(range(len(rows)), len(rows)), set(), set()
    for least in (width + 1, 1):  # first rows that add much, then all that add something
        for i in order:
            if len(parts[i] - seen) >= least:
                kept.add(i)
                seen |= parts[i]
    return kept
