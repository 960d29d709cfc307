import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.core import memory
from regard.core.errors import RegardError
from regard.core.memory import forget_peak, peak_mb
from regard.training.precision import choose_precision


@pytest.mark.parametrize(
    ("amx", "avx", "used", "name", "word"),
    [
        (True, True, True, "bf16", "AMX"),
        (False, True, True, "bf16", "AVX512-BF16"),
        (False, True, False, "fp32", "oneDNN does not use"),
        (False, False, False, "fp32", "neither"),
    ],
)
def test_auto_follows_the_processor(
    monkeypatch: pytest.MonkeyPatch, amx: bool, avx: bool, used: bool, name: str, word: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: used, raising=False)
    chosen = choose_precision("auto")
    assert chosen.name == name
    assert word in chosen.reason


def test_an_lstm_is_trained_where_the_libraries_are_told_to_use_no_avx512() -> None:
    code = (
        "import torch\n"
        "from regard.training.precision import choose_precision\n"
        "with choose_precision('auto').autocast():\n"
        "    torch.nn.LSTM(4, 4)(torch.ones(2, 3, 4))[0].sum().backward()\n"
    )
    limits = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | limits)


def test_what_is_asked_for_is_done() -> None:
    product = torch.ones(2, 3)
    with choose_precision("bf16").autocast():
        assert (product @ product.T).dtype == torch.bfloat16
    with choose_precision("fp32").autocast():
        assert (product @ product.T).dtype == torch.float32
    with pytest.raises(RegardError, match="unknown precision 'fp8'; choose auto, fp32 or bf16"):
        choose_precision("fp8")


def test_peak_counts_megabytes() -> None:
    forget_peak()  # other tests held more
    before = peak_mb()
    block = bytearray(b"\x01") * 400_000_000
    assert before + 200 < peak_mb() < before + 600
    assert len(block) == 400_000_000


def test_holes_in_the_heap_are_handed_back() -> None:
    code = (
        "import torch\n"
        "from pathlib import Path\n"
        "from regard.core.memory import keep_freed_memory, trim\n"
        "def held():\n"
        "    pages = Path('/proc/self/statm').read_text().split()[1]\n"
        "    return int(pages) * 4096 / 1e6\n"
        "keep_freed_memory()\n"
        "blocks = [torch.ones(250_000) for _ in range(400)]\n"
        "full = held()\n"
        "blocks = blocks[::40]\n"
        "kept = held()\n"
        "assert kept > full - 100, (full, kept)\n"
        "assert trim()\n"
        "assert held() < kept - 300, (kept, held())\n"
        "assert all(bool((block == 1).all()) for block in blocks)\n"
    )
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the heap of glibc")
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_memory_is_kept_in_a_process_of_its_own() -> None:
    code = (
        "import platform\n"
        "from regard.core.memory import keep_freed_memory\n"
        "assert keep_freed_memory() == (platform.libc_ver()[0] == 'glibc')\n"
        "assert len(bytearray(50_000_000)) == 50_000_000\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize("chosen", [None, "0"])
def test_the_command_line_asks_for_huge_pages_unless_told_otherwise(chosen) -> None:
    code = (
        "import os, sys, regard.__main__\n"
        "assert 'torch' not in sys.modules\n"
        "print(os.environ['THP_MEM_ALLOC_ENABLE'])\n"
    )
    others = {key: x for key, x in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"}
    environment = others | ({"THP_MEM_ALLOC_ENABLE": chosen} if chosen else {})
    made = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    assert made.stdout.strip() == (chosen or "1")


def test_free_memory_is_the_least_that_machine_and_container_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert memory.free_mb() > 100
    lines = "MemTotal: 9000 kB\nMemAvailable:  4000 kB\nSwapFree:   1000 kB\n"
    (tmp_path / "meminfo").write_text(lines)
    monkeypatch.setattr(memory, "FREE", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    assert memory.free_mb() == pytest.approx(5000 * 1024 / 1e6)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    assert memory.free_mb() == pytest.approx(0.6)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_mb() == pytest.approx(5000 * 1024 / 1e6)
    monkeypatch.setattr(memory, "FREE", tmp_path / "none")
    assert memory.free_mb() == 0.0  # nobody tells
