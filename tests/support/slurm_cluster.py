"""A Slurm of two nodes on this machine, for tests of the batch scripts; needs root, slurm-wlm and munge."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

NODES = ("n1", "n2")
_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol")
#: Programs of the system that are not on the PATH of every user.
_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"])

_ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}

_SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmi2
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=16000
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=16000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""


def missing() -> str | None:
    """Return why no Slurm can be started here, or None."""
    if os.geteuid():
        return "starting a Slurm needs root"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"no {', '.join(absent)} on this machine" if absent else None


class SlurmCluster:
    """Slurm's daemons, with all their files in one folder; ``close`` ends exactly the processes that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # Munge refuses folders that others may write to.
        folder.chmod(0o755)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(exist_ok=True)
        (folder / "slurm.conf").write_text(
            _SLURM_CONF.format(folder=folder, host=socket.gethostname(), ports=_free_ports(3), nodes=NODES)
        )
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._hastened: set[tuple[int, str]] = set()
        try:
            self._start_munge()
            self._start("slurmctld", "-D", "-i")
            for node in NODES:
                self._start("slurmd", "-D", "-N", node)
            self.wait_until(lambda: self.output("sinfo", "-h", "-o", "%t %D") == "idle 2", 60)
        except BaseException:
            self.close()
            raise

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{suffix}" for option, suffix in files.items()]
        # As root, with files in a folder of ours: munge is strict about the owner of each.
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *options)
        self.wait_until((self.folder / "munge.socket").exists, 20)

    def _start(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands, or a script that calls them."""
        return subprocess.run(
            command,
            env=self.environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def output(self, *command: str) -> str:
        """Return what a command prints, without white space around it."""
        return self.run(*command).stdout.strip()

    def submit(self, script: Path, *options: str) -> int:
        """Submit a script from its folder; returns the number of the job."""
        done = self.run("sbatch", "--parsable", *options, script.name, cwd=script.parent)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def facts(self, job: int) -> dict[str, str]:
        """Return the facts of a job by the names that ``scontrol show job`` gives them."""
        words = self.output("scontrol", "show", "job", str(job)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def has_ended(self, job: int) -> bool:
        """Whether a job is done or has failed. One that was requeued need not wait the two minutes that Slurm adds."""
        facts = self.facts(job)
        attempt = job, facts.get("Restarts", "")
        if (facts.get("JobState"), facts.get("Reason")) == ("PENDING", "BeginTime") and attempt not in self._hastened:
            self._hastened.add(attempt)
            # Not at once: slurmd refuses an attempt that begins in the second in which the one before it ended.
            self.run("scontrol", "update", f"JobId={job}", "StartTime=now+3seconds")
        return facts.get("JobState") in _ENDED

    def wait_until(self, holds: Callable[[], bool], timeout: float) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > deadline:
                logs = [path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("*.log"))]
                raise AssertionError("\n".join(logs))
            time.sleep(0.1)

    def close(self) -> None:
        """End the jobs and the daemons."""
        self.run("scancel", "--user=root")
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _free_ports(number: int) -> list[int]:
    with_ports = [socket.socket() for _ in range(number)]
    try:
        for each in with_ports:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in with_ports]
    finally:
        for each in with_ports:
            each.close()
