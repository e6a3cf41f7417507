"""Actions, one module per kind. An action changes the host; it never decides whether to."""

from __future__ import annotations

from typing import TypeVar

from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.actions.command import CommandAction
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.docker import DockerAction
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.actions.kubernetes import KubernetesAction
from trainwarden_remediator.actions.manager_target import ManagedAction
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.actions.run import RunAction
from trainwarden_remediator.actions.slurm import SlurmAction
from trainwarden_remediator.actions.supervisor import SupervisorAction
from trainwarden_remediator.actions.systemd import SystemdAction
from trainwarden_remediator.actions.writers import Writers
from trainwarden_remediator.config.restart_methods.base import RestartMethod
from trainwarden_remediator.config.restart_methods.command import CommandTarget
from trainwarden_remediator.config.restart_methods.docker import DockerTarget
from trainwarden_remediator.config.restart_methods.kubernetes import KubernetesTarget
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.config.restart_methods.run import RunTarget
from trainwarden_remediator.config.restart_methods.slurm import SlurmTarget
from trainwarden_remediator.config.restart_methods.supervisor import SupervisorTarget
from trainwarden_remediator.config.restart_methods.systemd import SystemdTarget
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Budget, GpuCleanup, Target

Method = TypeVar("Method", bound=RestartMethod)


def action_for(budget: Budget, setup: Setup, tracker: DescendantTracker) -> Action:
    match budget:
        case GpuCleanup():
            return GpuCleanupAction(budget, setup.exporter_config)
        case Target(restart_method=ProcessTarget() as process):
            return ProcessAction(budget, process, setup, tracker)
        case Target(restart_method=SystemdTarget() as unit):
            return _on_this_host(SystemdAction(budget, unit), budget, setup, tracker)
        case Target(restart_method=DockerTarget() as container):
            return _on_this_host(DockerAction(budget, container), budget, setup, tracker)
        case Target(restart_method=SupervisorTarget() as program):
            return _on_this_host(SupervisorAction(budget, program), budget, setup, tracker)
        case Target(restart_method=KubernetesTarget() as pod):
            return KubernetesAction(budget, pod)
        case Target(restart_method=SlurmTarget() as slurm):
            return SlurmAction(budget, slurm, setup)
        case Target(restart_method=RunTarget() as run):
            return RunAction(budget, run, setup)
        case Target(restart_method=CommandTarget() as command):
            return CommandAction(budget, command, setup)
    raise TypeError(f"no action for {type(budget).__name__}")


def _on_this_host(
    action: ManagedAction[Method], target: Target, setup: Setup, tracker: DescendantTracker
) -> ManagedAction[Method]:
    """The processes of a unit, container or program are here; those of a pod or job may not be."""
    action.writers_left = Writers(target, setup, tracker).any_left
    return action
