"""Lines of verl, OpenRLHF, slime, NeMo-RL and SkyRL."""

from __future__ import annotations

from line_writing import Line, ray, skyrl, slime

VERL = (
    Line(ray("Load from checkpoint folder: checkpoints/gsm8k/qwen_grpo/global_step_20")),
    Line(ray("Setting global step to 20"), {"resumed": {"step": "20"}}),
    Line(ray("Resuming from checkpoints/gsm8k/qwen_grpo/global_step_20")),
    Line(
        ray("Training Progress:  20%|██        | 20/100 [00:00<?, ?it/s]"),
        {"bar": {"step": "20", "total": "100"}},
    ),
    Line(ray("step:20 - val-core/gsm8k/acc/mean@1:0.61"), {"step": {"step": "20"}}),
    Line(
        ray(
            "step:21 - actor/pg_loss:np.float64(-0.0123) - actor/ppo_kl:0.0001 - "
            "actor/grad_norm:0.3512 - critic/rewards/mean:0.5312 - perf/time_per_step:61.25 - "
            "perf/throughput:1234.5 - training/off_policy/trajectory_staleness/max:2"
        ),
        {
            "step": {"step": "21", "seconds": "61.25"},
            "loss": {"loss": "-0.0123"},
            "kl": {"kl": "0.0001"},
            "grad_norm": {"grad_norm": "0.3512"},
            "reward": {"reward": "0.5312"},
            "throughput": {"throughput": "1234.5"},
            "staleness": {"staleness": "2"},
        },
    ),
    Line(
        ray("Training Progress:  21%|██        | 21/100 [01:01<1:20:38, 61.25s/it]"),
        {"bar": {"step": "21", "total": "100"}},
    ),
    Line(
        ray("step:22 - actor/pg_loss:nan - actor/grad_norm:inf"),
        {"step": {"step": "22"}, "loss": {"loss": "nan"}, "grad_norm": {"grad_norm": "inf"}},
    ),
    Line(
        ray("local_global_step_folder: checkpoints/gsm8k/qwen_grpo/global_step_30"), {"saving": {}}
    ),
    Line(
        ray("[Rank 0] Saved model to checkpoints/g/q/global_step_30/actor/model.pt", "WorkerDict")
    ),
    Line(ray("test_gen_batch meta info: {'eos_token_id': 151645, 'validate': True}")),
    Line(ray("Capturing CUDA graph shapes: 100%|██████████| 35/35 [00:10<00:00]", "WorkerDict")),
    Line(
        ray("[FullyAsyncRollouter][ShouldPause]  queue is full", "FullyAsyncRollouter"),
        {"rollouter_paused": {}},
    ),
    Line(
        ray("(\"Final validation metrics: {'val-core/gsm8k/acc/mean@1': 0.7}\")"), {"finished": {}}
    ),
    Line(
        ray("Warning: No dataloader state found at x/data.pt, will start from scratch"),
        {"no_resume_data": {}},
    ),
)

OPENRLHF = (
    Line(
        ray(
            "INFO 08-13 19:25:45 ppo_trainer.py:435] checkpoint_states: {'episode': 0, "
            "'global_step': 40, 'total_consumed_prompts': 5120}",
            "PPOTrainer",
        ),
        {"resumed": {"step": "40"}},
    ),
    Line(ray("INFO 08-13 19:26:45 experience_maker.py:116] 🚀 Starting experience making", "X")),
    Line(
        ray(
            "INFO 08-13 19:27:45 experience_maker.py:232] ✨ Experience making completed in "
            "0:00:31",
            "X",
        ),
        {"experience": {}},
    ),
    Line(
        ray(
            "INFO 08-13 19:27:50 ppo_trainer.py:547] ✨ Global step 41: {'policy_loss': -0.0021, "
            "'actor_grad_norm': 0.21, 'kl': 0.0031, 'rollout/reward_mean': 0.512, "
            "'timing/generation': 31.2, 'timing/step_total': 58.9}",
            "PPOTrainer",
        ),
        {
            "step": {"step": "41", "seconds": "58.9"},
            "loss": {"loss": "-0.0021"},
            "grad_norm": {"grad_norm": "0.21"},
            "kl": {"kl": "0.0031"},
            "reward": {"reward": "0.512"},
        },
    ),
    Line(
        "INFO 08-13 19:28:50 x.py:244] Global step 42: {'policy_loss': nan}",
        {"step": {"step": "42"}, "loss": {"loss": "nan"}},
    ),
    Line(
        "INFO 08-13 19:29:00 ppo_trainer.py:581] ⏰ Evaluation start time: 2026-08-13 19:29:00",
        {"evaluating": {}},
    ),
    Line(
        "INFO 08-13 19:29:30 ppo_trainer.py:594] ✨ Evaluation completed in 0:00:30, "
        "global_step 42, eval_metrics: {'eval_default_pass1': 0.5}",
        {"evaluated": {}},
    ),
    Line("Deleted checkpoint ckpt/_actor/global_step20 (no metric (oldest))"),
    Line("Episode [1/1]:  42%|████      | 5376/12800 [1:02:01<1:25:00, 1.45it/s]"),
    Line("INFO 08-13 19:30:00 s.py:129] Prompt dataloader is exhausted.", {"data_at_an_end": {}}),
    Line(
        "Warning: [deepspeed] No checkpoint found at ckpt/_actor, skipping checkpoint loading.",
        {"no_checkpoint": {}},
    ),
)

SLIME = (
    Line(
        slime(" successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration 199"),
        {"resumed": {"step": "199"}},
    ),
    Line(slime("Timer update_weights start"), {"updating_weights": {}}),
    Line(slime("Timer update_weights end (elapsed: 4.1s)"), {"waiting": {}}),
    Line(
        ray(
            "[2026-08-21 17:14:50] rollout_metrics.py:268 - perf 200: {'rollout/response_len/mean':"
            " 812.5, 'perf/rollout_time': 31.2}",
            "RolloutManager",
        )
    ),
    Line(slime("Timer train_wait end (elapsed: 35.0s)"), {"waited": {}}),
    Line(slime("Timer train start"), {"training": {}}),
    Line(
        slime("rollout 200: {'rollout/raw_reward': 0.5, 'rollout/log_probs': -0.3}"),
        {"reward": {"reward": "0.5"}},
    ),
    Line(
        slime("step 400: {'train/loss': 0.01, 'train/grad_norm': 0.2, 'train/step': 400}"),
        {"loss": {"loss": "0.01"}, "grad_norm": {"grad_norm": "0.2"}},
    ),
    Line(slime("Timer train end (elapsed: 20.0s)")),
    Line(slime("Timer train_wait start"), {"waiting": {}}),
    Line(
        slime(
            "perf 200: {'perf/train_wait_time': 35.0, 'perf/train_time': 20.0, "
            "'perf/step_time': 55.0, 'perf/wait_time_ratio': 0.63}"
        ),
        {"step": {"step": "200", "seconds": "55.0"}, "wait_ratio": {"rollout_wait_ratio": "0.63"}},
    ),
    Line(slime("Timer save_model start"), {"saving": {}}),
    Line(
        slime("  successfully saved checkpoint from iteration     200 to /ckpt [ t 1/2, p 1/1 ]"),
        {"saved": {"step": "200"}},
    ),
    Line(slime("Timer save_model end (elapsed: 12.0s)"), {"waiting": {}}),
    Line(slime("eval 200: {'eval/gsm8k': 0.7}"), {"evaluated": {}}),
    Line(slime("Router launched at 10.0.0.2:3456, Prometheus port: 29001")),
    Line(
        slime(
            "Health check failed for rollout engine 3 (ray timeout or error). Killing actor. "
            "Exception: "
        ),
        {"engine_unhealthy": {}},
    ),
    Line(slime("Recovered 1 dead rollout engines (worker_type=regular)"), {"engine_recovered": {}}),
    Line(slime("Recovered 0 dead rollout engines (worker_type=regular)")),
)

NEMO_RL = (
    Line("========================= Epoch 1/1 ========================="),
    Line(
        "========================= Step 21/100 =========================",
        {"step": {"step": "21", "total": "100"}},
    ),
    Line("▶ Preparing batch..."),
    Line("▶ Generating responses for batch of size 512...", {"generating": {}}),
    Line("▶ Processing rewards...,", {"generated": {}}),
    Line("▶ Computing logprobs..."),
    Line("▶ Training policy...", {"training": {}}),
    Line("🔄 Performing policy generation refit...", {"refit": {}}),
    Line("🔄 Resuming generation starts after refit", {"refitted": {}}),
    Line("▶ Starting validation at step 20...", {"evaluating": {}}),
    Line("    • Total validation time: 31.20s", {"evaluated": {}}),
    Line("Saving checkpoint for step 30...", {"saving": {"step": "30"}}),
    Line("📊 Training Results:", {"saved": {}}),
    Line("  • Draft Loss: 0.5000"),
    Line("  • Loss: -0.0123", {"loss": {"loss": "-0.0123"}}),
    Line("  • Generation KL Error: 0.0021", {"kl": {"kl": "0.0021"}}),
    Line("  • Avg Reward: 0.4102", {"reward": {"reward": "0.4102"}}),
    Line("  • Mean Generation Length: 312.1000"),
    Line("  • Total step time: 81.20s", {"step_time": {"seconds": "81.20"}}),
    Line("  • policy_training: 40.10s (49.4%)"),
    Line(
        ray("  Wait iteration 12: buffer_size=3, step 21 ready=False", "AsyncTrajectoryCollector"),
        {"generating": {}},
    ),
    Line("✅ Buffer ready for step 21! Starting training loop...", {"generated": {}}),
    Line("📊 Average trajectory age: 0.50 steps", {"staleness": {"staleness": "0.50"}}),
    Line("Removing checkpoint results/grpo/step_10 (step 10)"),
    Line("Max number of steps has been reached, stopping training early", {"finished": {}}),
    Line("STALLING: Need 32 prompts for step 22", {"starved": {}}),
    Line("WARNING: rollout stall -- no rollout committed for 600s", {"rollouts_stalled": {}}),
    Line("❌ Policy generation refit failed: timeout", {"refit_failed": {}}),
    Line("Error finalizing pending checkpoint: x", {"checkpoint_failed": {}}),
)

SKYRL = (
    Line(skyrl("Resuming from global_step: 20"), {"resumed": {"step": "20"}}),
    Line(
        ray("Training Batches Processed:  20%|██        | 20/100 [00:00<?, ?it/s]"),
        {"bar": {"step": "20", "total": "100"}},
    ),
    Line(skyrl("Started: 'step'")),
    Line(skyrl("Started: 'generate'"), {"generating": {}}),
    Line(skyrl("Finished: 'generate', time cost: 31.20s"), {"generated": {}}),
    Line(
        skyrl("reward/avg_pass_at_4: 0.71, reward/avg_raw_reward: 0.41"),
        {"reward": {"reward": "0.41"}},
    ),
    Line(skyrl("Started: 'train_critic_and_policy'"), {"training": {}}),
    Line(skyrl("Finished: 'train_critic_and_policy', time cost: 20.10s")),
    Line(skyrl("Started: 'save_checkpoints'"), {"saving": {}}),
    Line(skyrl("Finished: 'save_checkpoints', time cost: 9.10s"), {"saved": {}}),
    Line(skyrl("Started: 'cleanup_old_checkpoints'")),
    Line(skyrl("Started: 'sync_weights'"), {"syncing": {}}),
    Line(
        skyrl("Finished: 'sync_weights', time cost: 2.10s"),
        {"synced": {"weight_update_seconds": "2.10"}},
    ),
    Line(skyrl("Finished: 'step', time cost: 61.20s"), {"step_time": {"seconds": "61.20"}}),
    Line(skyrl("Started: 'eval'"), {"evaluating": {}}),
    Line(skyrl("Finished: 'eval', time cost: 21.20s"), {"evaluated": {}}),
    Line(skyrl("Step 21: "), {"step": {"step": "21"}}),
    Line(ray("{'policy/final_loss': '0.0123',"), {"loss": {"loss": "0.0123"}}),
    Line(ray(" 'policy/raw_grad_norm': '0.3100',"), {"grad_norm": {"grad_norm": "0.3100"}}),
    Line(
        ray("Training Step Progress:  21%|██        | 21/100 [01:01<1:20:38, 61.25s/it]"),
        {"bar": {"step": "21", "total": "100"}},
    ),
    Line(ray("Generation Buffer Progress:  50%|█████     | 8/16 [00:10<00:10]")),
    Line(skyrl("Training done!"), {"finished": {}}),
    Line(
        skyrl("Generator worker errored out with exception: x", "ERROR"), {"generator_failed": {}}
    ),
    Line(
        "AssertionError: Staleness control violated despite using AsyncStalenessManager: 5",
        {"staleness_violated": {}},
    ),
)
