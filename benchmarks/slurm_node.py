"""A Slurm of one node on this machine: its configuration in a folder, and its daemons.

    python -m benchmarks.slurm_node FOLDER          # runs until Ctrl-C
    SLURM_CONF=FOLDER/slurm.conf sinfo

It needs Debian's packages slurm-wlm and munge, and root, as slurmd starts jobs of any user. There
is no accounting, no cgroup and no systemd; memory is not limited.
"""

import argparse
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.core.errors import RegardError

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue")
KILL_WAIT = 2  # seconds between SIGTERM, which submitit ignores, and SIGKILL
PATIENCE = 60.0  # seconds until the node is idle
CONFIGURATION = """\
ClusterName=regard
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={port_of_node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=2
JobRequeue=1
KillWait={kill_wait}
MinJobAge=300
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def slurm_node(folder: Path, cpus: int = 2) -> Iterator[dict[str, str]]:
    """Start the daemons; yield the environment in which Slurm's commands find them.

    Raises: a package that is not installed; not root; the node does not become idle.
    """
    if missing := [name for name in NEEDED if not _found(name)]:
        raise RegardError(f"{missing[0]} is not installed: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        raise RegardError("a Slurm node needs root, as slurmd starts the jobs of users")
    folder = folder.resolve()
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    host = socket.gethostname().split(".")[0]
    conf = folder / "slurm.conf"
    numbers = {"kill_wait": KILL_WAIT, "port": _free_port(), "port_of_node": _free_port()}
    conf.write_text(CONFIGURATION.format(folder=folder, host=host, cpus=cpus, **numbers))
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    daemons = []
    try:
        for command in (
            ["munged", "--foreground", "--force", f"--key-file={key}",
             f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
             f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"],
            ["slurmctld", "-D", "-c", "-f", str(conf)],
            ["slurmd", "-D", "-c", "-f", str(conf), "-N", host],
        ):  # fmt: skip
            with (folder / f"{command[0]}.out").open("wb") as out:
                daemons.append(
                    subprocess.Popen(  # noqa: S603
                        [_found(command[0]) or command[0], *command[1:]],
                        env=environment,
                        stdout=out,
                        stderr=out,
                        start_new_session=True,
                    )
                )
            time.sleep(1)
        _wait_until_idle(environment, folder)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(15)
            daemon.kill()


def _found(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_until_idle(environment: dict[str, str], folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        told = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"],  # noqa: S607
            env=environment,
            capture_output=True,
            text=True,
        )
        if told.stdout.strip() == "idle":
            return
        time.sleep(1)
    raise RegardError(f"the Slurm node is not idle; see the logs in {folder}: {told.stdout}")


def main(arguments: list[str] | None = None) -> int:
    """Run the node until Ctrl-C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(arguments)
    with suppress(KeyboardInterrupt), slurm_node(asked.folder) as environment:
        print(f"export SLURM_CONF={environment['SLURM_CONF']}", file=sys.stderr)
        while True:
            time.sleep(60)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
