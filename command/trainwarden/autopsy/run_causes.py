"""Causes in the run and in what started or stopped it. Data only."""

from __future__ import annotations

from signal import Signals

from trainwarden.autopsy import announced_findings as recorded
from trainwarden.autopsy import end_findings as ends
from trainwarden.autopsy import findings as seen
from trainwarden.autopsy import machine_findings as machine
from trainwarden.autopsy import restart_findings as restarts
from trainwarden.autopsy.cause import RESUME, Cause
from trainwarden.autopsy.signs import FINISHED, Sign, absent, any_time, first_of, lines
from trainwarden_exporter.frameworks.base import bullet_points

_OF_CRASHES = (
    *(Signals.SIGKILL, Signals.SIGSEGV, Signals.SIGABRT),
    *(Signals.SIGBUS, Signals.SIGILL, Signals.SIGFPE),
)

RUN_CAUSES: tuple[Cause, ...] = (
    Cause(
        "not_started",
        "The command could not be started",
        (Sign(20, recorded.not_started, key=True),),  # what a log shows beside it is of another run
        bullet_points("""
            - Correct the command, or activate the environment that has it, and start it
              again.
        """),
        ("workers",),
        (),
    ),
    Cause(
        "wrong_usage",
        "The arguments of the command are wrong",
        (
            lines("wrong_usage", points=6, what="The program names what is wrong"),
            first_of("wrong_usage"),
            FINISHED,
        ),
        bullet_points("""
            - Correct the arguments that the line names, and start the command again: a
              restart with the same ones fails again.
        """),
        ("workers",),
        ("TrainingWorkerGone",),
    ),
    Cause(
        "restart_loop",
        "The container or its start script failed at once, and was started again and again",
        (
            Sign(6, seen.start_loop, key=True),
            lines("start_failed", points=3, what="The start failed", least=3, key=False),
            Sign(2, seen.same_exit),
            Sign(-6, seen.progress_after_loop),
            Sign(-3, seen.named_start_error),
            FINISHED,
        ),
        bullet_points("""
            - Mend the start command first: a restart cannot heal a restart loop.
            - Make each of its steps repeatable: `git clone` into a folder that exists fails, so
              remove the folder first, or use `git pull` where it exists.
            - Stop the platform's automatic restart while you look, and read the first
              error of one start.
        """),
        ("container", "workers"),
        ("TrainingContainerRestartLoop", "TrainingWorkerRestartLoop"),
    ),
    Cause(
        "inference_down",
        "The inference server was down",
        (
            lines("connection_refused", points=4, what="Connections were refused", least=3),
            lines(
                *("engine_died", "inference_unhealthy", "inference_unreachable"),
                *("vllm_unreachable", "server_failed"),
                points=4,
                what="The engine or its client reports it",
            ),
            Sign(6, restarts.restarted_for(*restarts.SERVER), key=True),
            Sign(2, seen.no_step_after_errors),
            Sign(2, seen.server_log_ended),
            first_of("connection_refused", "engine_died", "connection_lost"),
            lines("gpu_busy", points=-3, what="The server could not have the GPU", key=False),
            lines(
                *("gpu_out_of_memory", "host_out_of_memory"),
                role="inference",
                points=-4,
                what="The server itself ran out of memory",
                key=False,
            ),
            Sign(-3, seen.loop_explains),
            FINISHED,
        ),
        bullet_points("""
            - Start the server again, and ask it for one token before the trainer goes
              on.
            - Read the end of its own log. If it stops without a word, it was killed:
              compare memory of GPU and host, and the last weight update.
            - Then restart the run from its last good checkpoint, if it does not
              go on alone.
        """),
        ("inference", "workers"),
        ("TrainingInferenceDown", "TrainingInferenceHung"),
    ),
    Cause(
        "rollouts_missing",
        "The trainer waited for a batch that no other part wrote",
        (
            Sign(5, seen.waiting, key=True),
            Sign(2, seen.no_newer_batch),
            Sign(2, seen.writer_errors),
            Sign(1, seen.writer_log_ended),
            Sign(1, seen.writer_logs_missing),
            Sign(-4, seen.newer_batch),
            Sign(-4, seen.refused_before),
            FINISHED,
        ),
        bullet_points("""
            - Look at the orchestrator first: is its process there, and what is its
              last line?
            - Then at the inference server it asks (its URL, a real token), at the
              environment it needs, and whether it may write to the output folder.
            - Keep the logs of all parts, not only the trainer's.
        """),
        ("rollouts", "workers"),
        ("TrainingWaitingForRollouts", "TrainingRolloutLag"),
    ),
    Cause(
        "weight_update",
        "A weight update took too long or failed",
        (
            lines(
                *("weight_update_timeout", "weight_update_failed"),
                points=5,
                what="The update timed out or failed",
            ),
            first_of("weight_update_timeout", "weight_update_failed"),
            FINISHED,
        ),
        bullet_points("""
            - Measure how long the weights take to write and to read; a slow or
              network disk is the usual reason.
            - Raise the framework's time-out, or update the weights without the disk.
        """),
        ("disk", "progress"),
        ("TrainingWeightUpdateSlow", "TrainingDiskSlow"),
    ),
    Cause(
        "nccl",
        "A collective operation of the ranks failed or hung",
        (
            lines("nccl_timeout", "nccl_error", points=4, what="NCCL reports it"),
            first_of("nccl_timeout", "nccl_error"),
            lines(
                *("gpu_out_of_memory", "gpu_fault", "host_out_of_memory", "oom_kill"),
                points=-2,
                what="A rank failed otherwise, and the others waited for it",
                key=False,
            ),
            FINISHED,
        ),
        bullet_points("""
            - Find the rank that the others waited for: the one whose log ends first,
              or that logs another error.
        """),
        ("progress", "workers"),
        ("TrainingStepStalled", "TrainingTroubleLine"),
    ),
    Cause(
        "ray_death",
        "A Ray actor or node died",
        (
            lines("ray_death", points=4, what="Ray reports it"),
            first_of("ray_death"),
            lines(
                *("gpu_out_of_memory", "host_out_of_memory", "oom_kill"),
                points=-2,
                what="It ran out of memory",
                key=False,
            ),
            FINISHED,
        ),
        bullet_points("""
            - Read that actor's own log in /tmp/ray/session_latest/logs.
        """),
        ("workers",),
        ("TrainingWorkerGone", "TrainingTroubleLine"),
    ),
    Cause(
        "not_finite",
        "The loss became NaN or infinite",
        (Sign(5, seen.not_finite, key=True),),
        bullet_points("""
            - Lower the learning rate or clip gradients, and look at the batch of the
              first such step. What was saved since is worthless.
        """),
        ("progress",),
        ("TrainingNotFinite",),
    ),
    Cause(
        "ended_from_outside",
        "It was ended from outside: by the scheduler, the platform or a signal",
        (
            lines("time_limit", points=4, what="The scheduler's time limit ended it"),
            lines("preempted", points=4, what="The platform took the machine back"),
            lines("cancelled", points=5, what="The scheduler cancelled the job"),
            lines("terminated", points=3, what="It received SIGTERM"),
            Sign(4, ends.exit_by(Signals.SIGTERM, Signals.SIGHUP), key=True),
            first_of("process_killed", "child_ended", points=-1),
            Sign(-4, seen.stood_still),
            FINISHED,
        ),
        bullet_points("""
            - Ask the scheduler or the platform why: `sacct -j JOB -o
              state,exitcode,elapsed,timelimit`, or the events of the pod.
            - Let the run save before its time limit, and resume from the last
              good checkpoint.
        """),
        ("workers",),
        ("TrainingWorkerGone", "TrainingWorkerInterrupted"),
    ),
    Cause(
        "interrupted",
        "It was stopped by hand",
        (
            lines("interrupted", points=5, what="Ctrl-C or SIGINT"),
            Sign(5, ends.exit_by(Signals.SIGINT), key=True),
            Sign(5, recorded.announced_stop, key=True),
            Sign(0, recorded.silent_before_stop),
            Sign(-4, seen.stood_still),
            Sign(-2, seen.refused_before),
            FINISHED,
        ),
        bullet_points(f"- {RESUME}"),
        ("workers",),
        ("TrainingWorkerInterrupted",),
    ),
    Cause(
        "restarted",
        "The remediator restarted it again and again",
        (
            Sign(6, restarts.restarts_without_reason, key=True),
            Sign(-3, restarts.failure_explains),
            FINISHED,
        ),
        bullet_points("""
            - `trainwarden journal` has the reason of each restart, such as a memory limit
              or a hang: mend it, as a restart only postpones it.
        """),
        ("workers", "memory"),
        ("TrainingWorkerRestartLoop",),
    ),
    Cause(
        "killed",
        "A process was killed or crashed",
        (
            lines(
                *("process_killed", "child_ended"),
                points=4,
                what="A process ended by a signal or a bad status",
            ),
            first_of("process_killed", "child_ended", points=1),
            Sign(4, ends.exit_by(*_OF_CRASHES), key=True),
            Sign(4, recorded.announced_failure, key=True),
            Sign(6, restarts.restarted_for(*restarts.END), key=True),
            Sign(-6, restarts.error_before_restarts),
            lines("wrong_usage", points=-6, what="Its arguments were wrong", key=False),
            absent("oom_kill", points=0, what="No out-of-memory kill is in any log"),
            FINISHED,
        ),
        bullet_points("""
            - Signal 9 without an error before it is usually the kernel or the
              platform: look for an out-of-memory kill in the kernel log and in the
              events of the container.
        """),
        ("workers", "memory"),
        ("TrainingWorkerGone", "TrainingOomKill"),
    ),
    Cause(
        "watchdog_dead",
        "The watchdog had stopped before the run did, so that no part recovered it",
        (
            Sign(3, seen.silent_watchdog, key=True),
            any_time("worker_dead", points=1, what="It had found dead workers before", key=False),
        ),
        bullet_points("""
            - Let systemd or supervisord keep the watchdog alive, not nohup, and watch
              its heartbeat.
        """),
        ("watchdog",),
        ("TrainingHeartbeatMissed",),
    ),
    Cause(
        "same_step",
        "It fails at one particular step",
        (
            Sign(5, seen.same_step, key=True),
            Sign(1, seen.weights_at_end),
            Sign(-5, seen.loop_explains),
            Sign(-3, seen.error_explains),
            FINISHED,
        ),
        bullet_points("""
            - Look at what happens at that step only: a save, an evaluation, a weight
              update, one batch.
            - After a CUDA error, repeat it with `CUDA_LAUNCH_BLOCKING=1`: the
              traceback then names the operation.
        """),
        ("progress",),
        ("TrainingStepStalled",),
    ),
    Cause(
        "exception",
        "An exception ended it",
        (
            lines("raised", points=4, what="Raised"),
            lines("exception", points=1, what="A traceback", key=True),
            Sign(-3, seen.error_explains),
            lines("write_failed", points=-3, what="Writing a checkpoint failed", key=False),
            Sign(-2, seen.refused_before),
            Sign(-4, recorded.lived_on),
            FINISHED,
        ),
        bullet_points("""
            - Read the traceback that ends with that line.
        """),
        ("workers",),
        ("TrainingWorkerGone", "TrainingTroubleLine"),
        quotes=True,
    ),
    Cause(
        "logged_error",
        "It ended after an error that it logged",
        (Sign(5, ends.logged_error, key=True),),
        bullet_points("""
            - Read the lines before that one. If the program ends itself after such an error,
              mend what it names.
        """),
        ("workers",),
        ("TrainingWorkerGone",),
        quotes=True,
    ),
    Cause(
        "stalled",
        "It stopped making progress, without an error",
        (
            Sign(5, seen.silence, key=True),
            Sign(6, restarts.restarted_for(*restarts.HANG), key=True),
            Sign(4, recorded.long_silent_before_stop, key=True),
            Sign(-4, seen.waiting),
            FINISHED,
        ),
        bullet_points("""
            - If it still runs, look at its stacks before ending it: `trainwarden stacks
              NAME`, or `py-spy dump --pid PID`.
            - A hang in a collective is silent for up to the time-out of its process
              group.
        """),
        ("progress", "workers"),
        ("TrainingStepStalled",),
    ),
    Cause(
        "unknown_end",
        "It ended without a reason in its files",
        (
            Sign(4, ends.ended_silently, key=True),
            Sign(-4, seen.loop_explains),
            Sign(-4, ends.logged_error),
            Sign(-4, ends.exit_by(*Signals)),
            Sign(-3, machine.reboot_at_end),
            Sign(-3, machine.reboot_of_this_host),
            Sign(-2, seen.silence),
        ),
        bullet_points("""
            - Such an end is that of SIGKILL, of a closed terminal, or of a machine
              that went away: look at the kernel log, the events of the container and
              the scheduler's records.
            - Python holds lines back when its output is a file: set
              PYTHONUNBUFFERED=1, so that the last words are kept.
        """),
        ("workers", "memory"),
        ("TrainingWorkerGone", "TrainingOomKill"),
    ),
)
