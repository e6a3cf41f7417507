"""One file per kind of action. An action changes the box; it never judges whether it should."""

from __future__ import annotations

from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.actions.command import CommandAction
from trainwarden_remediator.actions.docker import DockerAction
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.actions.kubernetes import KubernetesAction
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.actions.slurm import SlurmAction
from trainwarden_remediator.actions.supervisor import SupervisorAction
from trainwarden_remediator.actions.systemd import SystemdAction
from trainwarden_remediator.config import Setup
from trainwarden_remediator.kin import KinMemory
from trainwarden_remediator.means.command import CommandTarget
from trainwarden_remediator.means.docker import DockerTarget
from trainwarden_remediator.means.kubernetes import KubernetesTarget
from trainwarden_remediator.means.process import ProcessTarget
from trainwarden_remediator.means.slurm import SlurmTarget
from trainwarden_remediator.means.supervisor import SupervisorTarget
from trainwarden_remediator.means.systemd import SystemdTarget
from trainwarden_remediator.targets import Budget, GpuCleanup, Target


def action_for(budget: Budget, setup: Setup, kin: KinMemory) -> Action:
    """The means by which something is acted upon."""
    match budget:
        case Target():
            return _restart(budget, setup, kin)
        case GpuCleanup():
            return GpuCleanupAction(budget, setup.watched)
        case _:
            raise TypeError(f"nothing can be done to a {type(budget).__name__}")


def _restart(target: Target, setup: Setup, kin: KinMemory) -> Action:
    match target.means:
        case ProcessTarget() as process:
            return ProcessAction(target, process, setup, kin)
        case SystemdTarget() as unit:
            return SystemdAction(target, unit)
        case DockerTarget() as container:
            return DockerAction(target, container)
        case SupervisorTarget() as program:
            return SupervisorAction(target, program)
        case KubernetesTarget() as pod:
            return KubernetesAction(target, pod)
        case SlurmTarget() as slurm:
            return SlurmAction(target, slurm, setup)
        case CommandTarget() as command:
            return CommandAction(target, command, setup)
        case _:
            raise TypeError(f"nothing restarts by {type(target.means).__name__}")
