"""Lines of AReaL and PRIME-RL."""

from __future__ import annotations

from line_writing import Line, areal, loguru

AREAL = (
    Line(
        areal(
            "LocalLauncher: experiment_name=gsm8k-grpo-full-local, trial_name=trial0, "
            "fileroot=outputs/grpo, run_id=0, is_recover_run=True",
            logger="Local Scheduler",
        )
    ),
    Line(
        areal(
            "LLM inference server launched at: AREAL_LLM_SERVER_ADDRS=172.17.0.2:13231",
            logger="Local Scheduler",
        )
    ),
    Line(areal("Loading recover info from outputs/grpo/recover_info", logger="Recover")),
    Line(
        areal(
            "Recovering from StepInfo(epoch=1, epoch_step=934, global_step=1869, "
            "steps_per_epoch=935).",
            logger="Recover",
        ),
        {"resumed": {"step": "1869"}},
    ),
    Line(
        areal(
            "Finish and accept rollout. enqueued: 4, running: 28, accepted: 96, rejected: 2.",
            logger="WorkflowExecutor",
        ),
        {
            "rollouts": {
                "rollouts_running": "28",
                "rollouts_accepted": "96",
                "rollouts_rejected": "2",
            }
        },
    ),
    Line(
        areal(
            "Memory-Usage after train step: memory allocated (GB): 3.10, memory reserved (GB): "
            "4.02, device memory used/total (GB): 9.21/15.99 | host RssAnon: 8123MB",
            logger="FSDPEngine Rank 0",
        ),
        {"memory": {"gpu_memory_gib": "9.21"}},
    ),
    Line(
        areal("Loading weights from disk done in 3.12s. Respond time: 0.41s."),
        {"weights_loaded": {"weight_update_seconds": "3.12"}},
    ),
    Line(areal("Saved recover checkpoint to /outputs/recover_checkpoint", logger="Recover")),
    Line(
        areal("Epoch 2/5 Step 935/935 Train step 1870/4675 done."),
        {"step": {"step": "1870", "total": "4675"}},
    ),
    Line(areal("Stats (1/1):")),
    Line("╒═════════════════════════════════╤════════════╤══════════════════╤════════════╕"),
    Line(
        "│ ppo_actor/task_reward/avg       │ 2.3500e-01 │ timeperf/rollout │ 1.2100e+01 │",
        {"reward": {"reward": "2.3500e-01"}},
    ),
    Line(
        "│ ppo_actor/update/actor_loss/avg │        nan │ timeperf/save    │ 0.0000e+00 │",
        {"loss": {"loss": "nan"}},
    ),
    Line(
        "│ ppo_actor/update/grad_norm      │ 1.0900e-01 │ timeperf/eval    │ 0.0000e+00 │",
        {"grad_norm": {"grad_norm": "1.0900e-01"}},
    ),
    Line(
        "│ version_stats/sample_staleness_theta_max │ 3.0000e+00 │",
        {"staleness": {"staleness": "3.0000e+00"}},
    ),
    Line(areal("Training completes! Total time elapsed 48211.20."), {"finished": {}}),
    Line(
        areal(
            "ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")",
            logger="RemoteInfEngine",
            level="ERROR",
        ),
        shared=frozenset({"connection_refused"}),
    ),
    Line(
        "TimeoutError: Timeout waiting for key 'root/gsm8k/trial0/update_weights_from_disk/57' "
        "(NfsNameRecordRepository)",
        shared=frozenset({"weight_update_timeout"}),
    ),
    Line(
        areal("Rollout timed out after 3600s", logger="RolloutController", level="ERROR"),
        {"rollout_timeout": {}},
    ),
    Line("Worker 'actor/0' failed with exit code -9", {"worker_failed": {}}),
    Line("Method 'train_batch' failed on worker 'actor/1'", {"method_failed": {}}),
    Line("queue.Full: Output queue is full. Task ID: 81. ", {"queue_full": {}}),
    Line(
        "Inference server at 172.17.0.2:13231 failed to become healthy within 300 seconds",
        {"inference_unhealthy": {}},
    ),
)

PRIME_RL = (
    Line(loguru("Starting RL trainer in World(world_size=2, rank=0) in outputs/wordle")),
    Line(loguru("Initializing metrics server on port 8000")),
    Line(loguru("Resuming training from checkpoint step 300"), {"resumed": {"step": "300"}}),
    Line(loguru("Starting from step 301 (total_tokens=1, total_samples=2)")),
    Line(loguru("Starting training loop (max_steps=1000)"), {"total": {"total": "1000"}}),
    Line(loguru("Broadcasting startup policy weights (v300) to inference engines")),
    Line(loguru("Starting training step 301", "DEBUG")),
    Line(loguru("Waiting for training batch to arrive", "DEBUG"), {"waiting": {}}),
    Line(loguru("Waited for batch to arrive for 12.51 seconds", "DEBUG"), {"waited": {}}),
    Line(loguru("Loading batch", "DEBUG"), {"waited": {}}),
    Line(
        loguru(
            "Step 301 |   55.1s | Loss 0.0123 | Entropy 0.5432 | Mismatch KL 0.0011 | "
            "Grad. Norm 0.4410 | LR 1.00e-06 | Throughput 12345 tokens/s | MFU 33.1% | "
            "Peak Mem. 61.2 GiB",
            "SUCCESS",
        ),
        {
            "step": {"step": "301", "seconds": "55.1s", "loss": "0.0123"},
            "grad_norm": {"grad_norm": "0.4410"},
            "throughput": {"throughput": "12345"},
        },
    ),
    Line(
        loguru("Step 302 |  1m 12s | Loss nan | Entropy 0.5 | LR 1.00e-06", "SUCCESS"),
        {"step": {"step": "302", "seconds": "1m 12s", "loss": "nan"}},
    ),
    Line(
        loguru("Step 303 |   800ms | Loss -0.1000 | Entropy 0.5", "SUCCESS"),
        {"step": {"step": "303", "seconds": "800ms", "loss": "-0.1000"}},
    ),
    Line(loguru("Saving checkpoint at step 400"), {"saving": {}}),
    Line(
        loguru(
            "Step 304 |   30.0s | Reward 0.7500 | Trainable 120/128 (93.8%) | Turns 3.1 | "
            "Branches 1.0 | Max Off-Policy 2 | Error 0.0% | Cancelled 0.0% | Truncation 1.6%",
            "SUCCESS",
        ),
        {"batch": {"reward": "0.7500", "staleness": "2"}},
    ),
    Line(
        loguru("Train batch 64/128 (50.0%); 32 inflight episodes (train=32, eval=0)"),
        {"collecting": {"batch_percent": "50.0"}},
    ),
    Line(
        loguru("Holding batch 306 until the trainer publishes policy v304 (currently v303)"),
        {"holding": {"rollout_version": "303"}},
    ),
    Line(
        loguru(
            "Orchestrator paused: waiting for trainer to broadcast checkpoint 304. "
            "Training is progressing normally."
        ),
        {"paused": {}},
    ),
    Line(loguru("Resuming dispatcher")),
    Line(loguru("Starting evals in gsm8k (128 total rollouts)"), {"evaluating": {}}),
    Line(
        loguru(
            "Evaluated gsm8k (Step 300) | Policy v299 |   12.1s | Reward 0.8000 | Turns 1.0 | "
            "Branches 1.0 | Error 0.0% | Truncation 0.0%",
            "SUCCESS",
        )
    ),
    Line(loguru("Updating policy in-flight to v304")),
    Line(loguru("Writing final checkpoint"), {"saving": {}}),
    Line(loguru("RL trainer finished!", "SUCCESS"), {"finished": {}}),
    Line(loguru("Orchestrator finished.", "SUCCESS")),
    Line(
        loguru(
            "Step 12 | Time: 55.10s | Loss: 0.0123 | Entropy: 0.5432 | Mismatch KL: 0.0011 | "
            "Grad. Norm: 0.4410 | LR: 1.00e-06 | Throughput: 12345 tokens/s | MFU: 33.1%",
            "SUCCESS",
        ),
        {
            "step_before_0_6": {"step": "12", "seconds": "55.10s", "loss": "0.0123"},
            "grad_norm": {"grad_norm": "0.4410"},
            "throughput": {"throughput": "12345"},
        },
    ),
    Line(
        loguru(
            "Step 13 | Time: 30.00s | Reward: 0.7500 | Throughput: 100.1 tokens/s | "
            "Seq. Length: 300.1 tokens/sample | Async Level: 1 | Max. Off-Policy Level: 1",
            "SUCCESS",
        ),
        {"batch": {"reward": "0.7500", "staleness": "1"}, "throughput": {"throughput": "100.1"}},
    ),
    Line(loguru("Waiting for training batch to arrive"), {"waiting": {}}),
    Line(loguru("Starting forward and backward pass (batch_size=8)"), {"waited": {}}),
    Line(
        loguru(
            "Cancelled 12 train episodes past max_off_policy_steps=8. Consider increasing it to "
            "avoid this.",
            "WARNING",
        ),
        {"cancelled": {"cancelled_episodes": "12"}},
    ),
    Line(
        loguru(
            "Step 305: empty train batch after 128 finalized episodes "
            "(consecutive empty batches: 1/10)",
            "WARNING",
        ),
        {"empty_batch": {}},
    ),
    Line(
        loguru("Episode task failed in group 8 (gsm8k): ValueError('no')", "WARNING"),
        {"episode_failed": {}},
    ),
    Line(
        loguru("Inference server was not reached after 1800 seconds. Shutting down.", "ERROR"),
        {"inference_unreachable": {}},
    ),
    Line(loguru("Orchestrator failed with exit code 1", "ERROR"), {"part_failed": {}}),
)
