"""The processes that train, validate or predict together: their ranks and communication.

RANK and WORLD_SIZE say which process this is, MASTER_ADDR and MASTER_PORT where the processes meet.
torchrun, Kubernetes (PyTorchJob) and Ray Train set them; under Slurm's ``srun`` the first two are
derived from SLURM_PROCID and SLURM_NTASKS. Tensors travel by NCCL between GPUs and by gloo between
processors. No object is pickled: numbers and arrays travel as tensors, text as UTF-8 in the store.
"""

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as distributed
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from regard.core.errors import RegardError
from regard.training.stopping import StoppedError
from regard.training.watchdog import Watchdog, attempt, watch_launcher

PORT = "29500"  # PyTorch's default
JOIN = timedelta(minutes=10)  # maximum delay between the starts of the first and last process
CONNECT = timedelta(seconds=60)  # timeout for a launcher's store, which starts before its processes
LATE = timedelta(seconds=45)  # maximum delay of a process at a collective
LEAVE = 10.0  # seconds that the host of the store waits at the end for the others
Arrays = Mapping[str, NDArray[Any]]
T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The rank of this process among `world`. With one process, methods return their arguments."""

    rank: int = 0
    world: int = 1
    watchdog: Watchdog | None = None
    _sharing: list[bool] = field(default_factory=list)
    _waits: list[int] = field(default_factory=lambda: [0])

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes results and prints."""
        return self.rank == 0

    def total(self, *numbers: float) -> list[float]:
        """Return the sum of each number over all processes."""
        if self.world == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        with self.meeting():
            distributed.all_reduce(sums)
        return sums.tolist()

    def broadcast(self, *numbers: float) -> list[float]:
        """Return the first process's numbers in every process."""
        return self.total(*(number if self.first else 0.0 for number in numbers))

    def wait(self) -> None:
        """Wait until all processes have arrived here, however long the work before it takes.

        Unlike a collective operation it has no timeout; the watchdog ends it if a process dies.
        """
        if self.watchdog is None:
            return
        self._waits[0] += 1
        with self.meeting():
            self.watchdog.gather(f"wait/{self._waits[0]}")

    def collect(self, key: str, text: str) -> list[str]:
        """Return every process's text under a key in the first process, nothing in the others.

        A background thread may call it.
        """
        return [text] if self.watchdog is None else self.watchdog.collect(key, text)

    def meeting(self) -> AbstractContextManager[None]:
        """Tell the watchdog that this process waits for others, so that idling is not a hang."""
        return nullcontext() if self.watchdog is None else self.watchdog.meeting()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Report an error within the context to the other processes, which then end.

        After an error that another process caused, such as a closed connection, this process ends
        at once and prints that process's reason.
        """
        if self.watchdog is None:
            yield
            return
        try:
            yield
        except (GeneratorExit, StoppedError):
            raise
        except BaseException as error:
            if cause := self.watchdog.report(error):
                self.watchdog.end(cause)
            raise

    @contextmanager
    def sharing(self, shared: bool = True) -> Iterator[None]:
        """Let `divide` divide its work within the context; all processes must call it equally."""
        self._sharing.append(shared)
        try:
            yield
        finally:
            self._sharing.pop()

    def divide(self, items: Sequence[T], work: Callable[[T], Arrays]) -> list[Arrays]:
        """Return ``work`` of each item, a mapping of arrays, in order.

        Within `sharing` each process works on every `world`-th item, and all processes get all
        results. These equal the results of a single process, since each item is computed by one.
        """
        return self.divide_all(items, lambda mine: [work(item) for item in mine])

    def divide_all(
        self, items: Sequence[T], work: Callable[[Sequence[T]], list[Arrays]]
    ) -> list[Arrays]:
        """Return the same as `divide`, with one call of ``work`` for all items of a process.

        Calls of `divide` inside ``work`` are not divided, since processes have different items.
        """
        if self.world == 1 or not any(self._sharing[-1:]):
            return work(items)
        mine = {}
        places = range(self.rank, len(items), self.world)
        with self.sharing(False):
            worked = work([items[i] for i in places])
        for place, arrays in zip(places, worked, strict=True):
            for name, values in arrays.items():
                mine[f"{place}/{name}"] = torch.from_numpy(np.array(values, order="C"))
        self.wait()  # shares take different times
        results: list[dict[str, NDArray[Any]]] = [{} for _ in items]
        for part in self._gathered(mine):
            for key, tensor in part.items():
                place_, _, name = key.partition("/")
                results[int(place_)][name] = tensor.numpy()
        return list(results)

    def _gathered(self, mine: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return the tensors of every process, sent as safetensors."""
        from safetensors.torch import load, save

        data = torch.frombuffer(bytearray(save(mine)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        with self.meeting():
            distributed.all_gather(sizes, torch.tensor([len(data)]))
            room = max(int(size) for size in sizes)
            parts = [torch.empty(room, dtype=torch.uint8) for _ in sizes]
            distributed.all_gather(parts, torch.nn.functional.pad(data, (0, room - len(data))))
        return [
            load(part[: int(size)].numpy().tobytes())
            for part, size in zip(parts, sizes, strict=True)
        ]


@cache
def ranks() -> Ranks:
    """Return this process's rank; the first call joins the others and starts the watchdog.

    Without RANK and WORLD_SIZE, and outside of ``srun``, there is one process. Raises: an invalid
    rank or world size; no MASTER_ADDR under ``srun``; processes that do not start.
    """
    rank, world = place()
    if world <= 1:
        return Ranks()
    if torch.cuda.is_available():
        local = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or rank)
        torch.cuda.set_device(local % torch.cuda.device_count())
    watch_launcher(rank)
    store = _store(rank, world)
    watchdog = Watchdog(store, rank, world)
    watchdog.start()
    with watchdog.meeting():
        watchdog.gather("join", JOIN.total_seconds())
    if not distributed.is_initialized():
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            store=PrefixStore(f"{attempt()}/group", store),
            rank=rank,
            world_size=world,
            timeout=LATE,
        )
    atexit.register(_leave, watchdog)
    return Ranks(rank, world, watchdog)


def place() -> tuple[int, int]:
    """Return rank and world size from the environment. Raises: see `ranks`."""
    environment = os.environ
    rank, world = environment.get("RANK"), environment.get("WORLD_SIZE")
    if rank is None and world is None and "SLURM_PROCID" in environment:
        rank, world = environment["SLURM_PROCID"], environment.get("SLURM_NTASKS", "1")
        in_step = "SLURM_STEP_ID" in environment or "MASTER_ADDR" in environment
        if not in_step:  # the script of a job, before srun
            return 0, 1
    rank, world = rank or "0", world or "1"
    if not (world.isdecimal() and rank.isdecimal() and int(rank) < max(int(world), 1)):
        raise RegardError(
            f"RANK={rank} and WORLD_SIZE={world} are invalid; RANK must be below WORLD_SIZE"
        )
    if int(world) > 1 and "MASTER_ADDR" not in environment:
        raise RegardError(
            f"{world} processes need the address of the first one; before srun, use "
            'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
        )
    return int(rank), int(world)


def _store(rank: int, world: int) -> Store:
    """Return the store of the launcher, or of the first process. Raises: none is reachable."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    os.environ.setdefault("MASTER_PORT", PORT)
    launched = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        meeting = rendezvous("env://", rank, world, timeout=CONNECT if launched else JOIN)
        store: Store = next(iter(meeting))[0]
    except (distributed.DistError, ValueError) as error:
        raise RegardError(
            f"rank {rank} cannot meet the others at {where} (MASTER_ADDR, MASTER_PORT): "
            f"{str(error).splitlines()[0]:.200}"
        ) from None
    return store


def _leave(watchdog: Watchdog) -> None:
    """Leave the group and stop its threads: a thread alive at exit would abort the process."""
    watchdog.leave(LEAVE)
    if not distributed.is_initialized():
        return
    if not watchdog.failed:
        distributed.destroy_process_group()
        return
    ending = threading.Thread(target=distributed.destroy_process_group, daemon=True)
    ending.start()  # with a dead peer it may wait for that peer
    ending.join(LEAVE)
