"""Peak memory of one side of one case, in a fresh process that has done nothing else.

    python -m benchmarks.memory "additive n=1024 heads=8 width=64 forward + backward" ours

prints JSON: ``extra_mb``, the peak above the memory after creating the inputs, and
``total_mb``, the peak above the memory before them, so with inputs and outputs. Before
that, a small call of the same kind loads and compiles all that the call needs.

With ``prompt`` the process returns freed memory at once (see `regard.analysis.memory`).
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from regard.analysis.memory import PROMPT, Memory, probe
from regard.core.errors import RegardError

PATIENCE = 1800.0  # seconds after which a probe that does not end is an error


def fresh(
    case: str,
    against: str,
    side: str,
    *,
    n: int | None = None,
    quick: bool = False,
    prompt: bool = False,
) -> Memory:
    """Run this module for a case in a separate process."""
    words = [sys.executable, "-m", "benchmarks.memory", case, side, "--against", against]
    words += [] if n is None else ["--n", str(n)]
    words += ["--quick"] if quick else []
    done = subprocess.run(  # noqa: S603
        words,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **(PROMPT if prompt else {})},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RegardError(f"the memory of {case} ({side}) could not be measured: {last}")
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    from benchmarks.attention import find

    parser = argparse.ArgumentParser(description="Peak memory of one side of a case.")
    parser.add_argument("case", help="its name, as `regard bench attention` prints it")
    parser.add_argument("side", choices=["ours", "theirs"])
    parser.add_argument("--against", default="", help="the peer; by default the case's first")
    parser.add_argument("--n", type=int, help="another size than the case's own")
    parser.add_argument("--quick", action="store_true", help="the small cases")
    asked = parser.parse_args(arguments)
    case = find(asked.case, asked.against, quick=asked.quick)
    n = asked.n or case.n
    case.warm_up(asked.side, n)
    found = probe(lambda: case.work(asked.side, n))
    sys.stdout.write(json.dumps(found._asdict()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
