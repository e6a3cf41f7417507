"""Lines of Transformers, torchtitan, Lightning, Optuna, Ray Train, Megatron-LM, DeepSpeed."""

from __future__ import annotations

from line_writing import GREEN, RED, Line, ray, titan

TRL = (
    Line("***** Running training *****"),
    Line("  Num examples = 7,473"),
    Line("  Total optimization steps = 1,500", {"total": {"total": "1,500"}}),
    Line("  Continuing training from global step 1000", {"resumed": {"step": "1000"}}),
    Line("===== Epoch 1/3 =====", {"epoch_of": {"epoch": "1", "epochs": "3"}}),
    Line(
        "{'loss': 0.0412, 'grad_norm': 0.3125, 'learning_rate': 9e-07, 'num_tokens': 12345.0, "
        "'reward': 0.61, 'reward_std': 0.31, 'frac_reward_zero_std': 0.25, 'kl': 0.0008, "
        "'epoch': 0.67}",
        {
            "logged": {"loss": "0.0412"},
            "grad_norm": {"grad_norm": "0.3125"},
            "reward": {"reward": "0.61"},
            "no_spread": {"groups_without_spread_ratio": "0.25"},
            "kl": {"kl": "0.0008"},
        },
    ),
    Line(
        "{'loss': '0.0398', 'grad_norm': 'nan', 'learning_rate': '8e-07', 'epoch': '0.68'}",
        {"logged": {"loss": "0.0398"}, "grad_norm": {"grad_norm": "nan"}},
    ),
    Line(
        " 67%|██████▋   | 1005/1500 [12:01<05:55,  1.39it/s]",
        {"bar": {"step": "1005", "total": "1500"}},
    ),
    Line("  0%|          | 0/1500 [00:00<?, ?it/s]", {"bar": {"step": "0", "total": "1500"}}),
    Line(
        " 1%|▏       | 20/1500 [00:10<12:20,  2.00it/s]Saving model checkpoint to o/checkpoint-20",
        {"bar": {"step": "20", "total": "1500"}, "saving": {"step": "20"}},
    ),
    Line("  2%|▏         | 1/50 [00:00<00:02, 21.10it/s]\x0b", {"evaluation_bar": {}}),
    Line("Writing model shards:   0%|          | 0/1 [00:00<?, ?it/s]\x0b", {"saving_bar": {}}),
    Line("Loading weights: 100%|██████████| 20/20 [00:00<00:00, 313.46it/s]"),
    Line("Map:  42%|████▏     | 420/1000 [00:00<00:00, 4242.42 examples/s]"),
    Line("***** Running Evaluation *****", {"evaluating": {}}),
    Line(
        "{'eval_loss': 0.4, 'eval_runtime': 12.3, 'eval_samples_per_second': 8.1, 'epoch': 0.7}",
        {"evaluated": {}},
    ),
    Line("Saving model checkpoint to out/checkpoint-1500", {"saving": {"step": "1500"}}),
    Line(
        "{'train_runtime': 3600.1, 'train_samples_per_second': 3.3, 'train_loss': 0.05, "
        "'epoch': 1.0}",
        {"finished": {}},
    ),
    Line("Training completed. Do not forget to share your model on huggingface.co/models =)"),
    Line("waited 3.2s for sample (qsize=0)", {"waited": {"rollout_wait_seconds": "3.2"}}),
    Line("Weight sync: done. Total 4.1s", {"weights_synced": {"weight_update_seconds": "4.1"}}),
    Line("dropping stale sample (version 3, now 8)", {"stale_sample": {}}),
    Line(
        "RuntimeError: Rollout worker heartbeat stale: 301s > 300s; child is hung",
        {"rollouts_hung": {}},
    ),
    Line(
        "ConnectionError: The vLLM server can't be reached at http://0.0.0.0:8000 after 240 s",
        {"vllm_unreachable": {}},
    ),
)

TORCHTITAN = (
    Line(
        titan(
            "Trainer is initialized with 8192 tokens per DP rank, 65536 tokens per train step, "
            "gradient accumulation steps 1, maximum context length 8192, total steps 1500 "
            "(warmup 200)"
        ),
        {"total": {"total": "1500"}},
    ),
    Line(titan("Loading the checkpoint from ./outputs/checkpoint/step-1000.")),
    Line(titan("Finished loading the checkpoint in 3.21 seconds.")),
    Line(titan("Training starts at step 1001"), {"started": {"step": "1001"}}),
    Line(
        titan(
            f"{RED}step: 1010  {GREEN}loss:  2.31245  \x1b[38;2;180;60;0mgrad_norm:  0.4512  "
            "\x1b[36mmemory: 61.20GiB(77.31%)  \x1b[34mtps: 7,012  \x1b[36mtflops: 410.12  "
            "\x1b[35mmfu: 41.47%\x1b[39m"
        ),
        {
            "step": {"step": "1010", "loss": "2.31245", "grad_norm": "0.4512"},
            "memory": {"gpu_memory_percent": "77.31"},
        },
    ),
    Line(
        titan("step:  5  loss: 12.20000  memory:  0.50GiB(0.53%)  tps: 5,103"),
        {"step": {"step": "5", "loss": "12.20000"}, "memory": {"gpu_memory_percent": "0.53"}},
    ),
    Line(
        titan(
            "\x1b[33mvalidate step: 1100  \x1b[32mloss:  2.2100  \x1b[36mmemory: 60.10GiB(75.92%)"
            "  \x1b[34mtps: 20,000\x1b[39m"
        ),
        {"evaluated": {"validation_loss": "2.2100"}, "memory": {"gpu_memory_percent": "75.92"}},
    ),
    Line(titan("Saving the checkpoint."), {"saving": {}}),
    Line(
        titan("Finished saving the checkpoint in 12.10 seconds."),
        {"saved": {"save_seconds": "12.10"}},
    ),
    Line(titan("Staging the checkpoint."), {"saving": {}}),
    Line(
        titan("Finished staging the checkpoint in 1.10 seconds."),
        {"saved": {"save_seconds": "1.10"}},
    ),
    Line(titan("Last step checkpoint completed in 9.10s"), {"saved": {"save_seconds": "9.10"}}),
    Line(titan("Sleeping 2 seconds for other ranks to complete")),
    Line(titan("Training completed"), {"finished": {}}),
    Line(titan("Ran out of data; last step was canceled."), {"data_at_an_end": {}}),
    Line(titan("2 CUDA memory allocation retries."), {"memory_retried": {}}),
    Line(titan("1 CUDA OOM errors thrown."), {}, shared=frozenset({"oom_thrown"})),
)

LIGHTNING = (
    Line("GPU available: True (cuda), used: True"),
    Line(
        "Restoring states from the checkpoint path at /x/epoch=0-step=1000.ckpt",
        {"resumed": {"step": "1000"}},
    ),
    Line("Restored all states from the checkpoint at /x/epoch=0-step=1000.ckpt"),
    Line("Sanity Checking DataLoader 0: 100%|██████████| 2/2", {"evaluating": {}}),
    Line(
        "Epoch 1:  42%|████▏     | 420/1000 [03:00<04:08,  2.33it/s, v_num=0, train_loss=0.51]",
        {"loss": {"loss": "0.51"}, "bar": {}},
    ),
    Line(
        "Epoch 1:  43%|████▎     | 430/1000 [03:05<04:03,  2.33it/s, v_num=0, loss=0.512]",
        {"loss": {"loss": "0.512"}, "bar": {}},
    ),
    Line(
        "Epoch 0/1  ━━━━━━━━━━━━╸━━━━━━━━━━━━ 20/50 0:00:02 • 0:00:03 9.66it/s v_num: 0.000",
        {"bar": {}},
    ),
    Line(
        "Epoch 1:  44%|████▍     | 440/1000 [03:10<04:01,  2.33it/s, v_num=0, val_loss=0.4, "
        "train_loss_step=nan.0]",
        {"loss": {"loss": "nan"}, "bar": {}},
    ),
    Line(
        "Epoch 0/1  ━━━━━━━━━━━━╸━━━━━━━━━━━━ 21/50 0:00:02 • 0:00:03 9.66it/s v_num: 0.000 "
        "train_loss: nan",
        {"loss": {"loss": "nan"}, "bar": {}},
    ),
    Line("Monitored metric val_loss = nan is not finite. Previous best value was 0.412."),
    Line("Validation DataLoader 0:  50%|█████     | 5/10", {"evaluating": {}}),
    Line("`Trainer.fit` stopped: `max_steps=3000` reached.", {"finished": {}}),
    Line(
        "Monitored metric val_loss did not improve in the last 3 records. Best score: 0.412. "
        "Signaling Trainer to stop.",
        {"early_stopped": {}},
    ),
    Line("Handling auto-requeue signal: 10", {"requeued": {}}),
)

OPTUNA = (
    Line(
        "[I 2026-08-21 05:04:31,218] A new study created in Journal with name: s",
        {"stored_study": {}},
    ),
    Line(
        "[I 2026-11-28 14:47:02,311] A new study created in RDB with name: s", {"stored_study": {}}
    ),
    Line(
        "[I 2026-11-28 14:47:03,009] Using an existing study with `study_name='s'` instead of "
        "creating a new one.",
        {"stored_study": {}},
    ),
    Line(
        "[I 2026-11-28 14:47:04,512] A new study created in memory with name: no-name-7c1e",
        {"unstored_study": {}},
    ),
    Line(
        "[I 2026-08-21 05:06:31,218] Trial 5 finished with value: 0.8125 and parameters: "
        "{'lr': 0.001}. Best is trial 3 with value: 0.875.",
        {"trial_finished": {"trial": "5", "value": "0.8125"}, "best": {"best_value": "0.875"}},
    ),
    Line(
        "[I 2026-08-21 05:06:31,218] Trial 6 finished with values: [0.5, 12.0] and parameters: {}.",
        {"trial_finished": {"trial": "6", "value": "0.5"}},
    ),
    Line("[I 2026-08-21 05:07:31,218] Trial 7 pruned. ", {"trial_pruned": {"trial": "7"}}),
    Line(
        "[W 2026-08-21 05:08:31,218] Trial 8 failed with parameters: {} because of the following "
        "error: ValueError('x').",
        {"trial_failed": {"trial": "8"}},
    ),
    Line("[W 2026-08-21 05:08:31,219] Trial 8 failed with value None."),
    Line(
        '{"op_code":6,"worker_id":"w-1","trial_id":8,"state":1,"values":[0.5]}', {"journaled": {}}
    ),
    Line('{"op_code":4,"worker_id":"w-1","study_id":0,"datetime_start":"2026-08-21T05:04:31"}'),
    Line('{"op_code":6,"worker_id":"w-1","trial_id":9,"state":0,"datetime_start":"2026-08-21"}'),
    Line("It is taking longer than 30 seconds to acquire the lock file: j.lock", {"lock_held": {}}),
)

RAY_TRAIN = (
    Line(ray("[State Transition] SCHEDULING -> RUNNING.", "TrainController"), {"started": {}}),
    Line(
        ray(
            "Checkpoint successfully created at: Checkpoint(filesystem=local, path=/r/c)",
            "RayTrainWorker",
        )
        + " [repeated 3x across cluster]",
        {"checkpoint": {}},
    ),
    Line(
        ray(
            "Reporting training result 12: TrainingReport(checkpoint=None, "
            "metrics={'loss': 0.51, 'epoch': 3}, validation=False) from rank 0",
            "RayTrainWorker",
        ),
        {"report": {"step": "12"}},
    ),
    Line(ray("[State Transition] RUNNING -> RESTARTING.", "TrainController"), {"restarting": {}}),
    Line(ray("[State Transition] RUNNING -> FINISHED.", "TrainController"), {"finished": {}}),
    Line(ray("[State Transition] RUNNING -> ERRORED.", "TrainController"), {"errored": {}}),
    Line(ray("[FailurePolicy] RETRY\n  Source: worker group", "TrainController"), {"failure": {}}),
    Line("Trial train_fn_a1b2c_00000 errored after 3 iterations", {"trial_errored": {}}),
)

MEGATRON = (
    Line("[before the start of training step] datetime: 2026-08-21 05:04:31 "),
    Line(
        "  successfully loaded checkpoint from /ckpt [ t 1/4, p 1/8 ] at iteration 500",
        {"resumed": {"step": "500"}},
    ),
    Line(
        " iteration       20/    1000 | consumed samples:           80 | elapsed time per "
        "iteration (ms): 1572.7 | learning rate: 3.750E-05 | global batch size:     4 | lm loss: "
        "1.210588E+01 | loss scale: 32768.0 | number of skipped iterations:   8 | number of nan "
        "iterations:   0 |",
        {"iteration": {"step": "20", "total": "1000", "loss": "1.210588E+01"}},
    ),
    Line(
        " [2026-08-21 05:04:31.218391] iteration      510/    1000 | consumed samples:       "
        "2040 | elapsed time per iteration (ms): 1613.7 | throughput per GPU (TFLOP/s/GPU): 410.2 "
        "| learning rate: 1.500000E-04 | global batch size:     4 | lm loss: nan | loss scale: 1.0 "
        "| grad norm: 0.451 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        {"iteration": {"step": "510", "total": "1000", "loss": "nan", "grad_norm": "0.451"}},
    ),
    Line(
        " iteration        1/    1000 | elapsed time per iteration (ms): 159778.9 | lm-loss: "
        "1.244238E+01 | loss scale: -1.0 | grad norm: 67.593 |",
        {
            "iteration": {
                "step": "1",
                "total": "1000",
                "loss": "1.244238E+01",
                "grad_norm": "67.593",
            }
        },
    ),
    Line("time (ms) | forward-compute: 265.42 | forward-recv: 1118.94 | optimizer: 9.24"),
    Line(
        "[2026-08-21 05:04:31.218391] saving checkpoint at iteration    1000 to /ckpt in "
        "torch_dist format",
        {"saving": {"step": "1000"}},
    ),
    Line("saving checkpoint at iteration     500 to /ckpt", {"saving": {"step": "500"}}),
    Line(
        "  successfully saved checkpoint from iteration    1000 to /ckpt [ t 1/4, p 1/8 ]",
        {"saved": {"step": "1000"}},
    ),
    Line(
        "  scheduled an async checkpoint save at iteration    1000 to /ckpt",
        {"saved": {"step": "1000"}},
    ),
    Line("Evaluating on 160 samples", {"evaluating": {}}),
    Line(
        " validation loss at iteration 100 | lm loss value: 8.095942E+00 | lm loss PPL: 3.2E+03 | ",
        {"evaluated": {"validation_loss": "8.095942E+00"}},
    ),
    Line("[exiting program at iteration 600] datetime: 2026-08-21 05:04:31 ", {"finished": {}}),
    Line("exiting program after 1190.2 minutes", {"finished": {}}),
    Line("exiting program after receiving SIGTERM."),
    Line("[after training is done] datetime: 2026-08-21 05:04:31 ", {"finished": {}}),
    Line(
        "RuntimeError: Rank 3, node n1, device 3, iteration 9: found NaN in local grad norm",
        {"errored": {}},
    ),
    Line("ERROR: Invalid metadata file /ckpt/latest.txt. Exiting", {"errored": {}}),
)

DEEPSPEED = (
    Line(
        "[2026-08-21 19:51:55,061] [INFO] [logging.py:60:log_dist] [Rank 0] step=10, skipped=4, "
        "lr=[1.875e-05, 1.875e-05], mom=[(0.9, 0.999), (0.9, 0.999)]",
        {"step": {"step": "10"}},
    ),
    Line(
        "[2026-08-21 19:51:55,062] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10,"
        " RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.70, MemAllocated=4.32GB"
    ),
    Line(
        "steps: 2 loss: 12.8004 iter time (s): 145.206 samples/sec: 7.052",
        {"pipeline_step": {"step": "2", "loss": "12.8004", "seconds": "145.206"}},
    ),
    Line(
        " iteration        2/    1000 | elapsed time per iteration (ms): 145207.0 | learning rate: "
        "3.750E-05 | lm loss: 1.280042E+01 | loss scale: 1024.0 |",
        {"iteration": {"step": "2", "total": "1000", "loss": "1.280042E+01"}},
    ),
    Line(
        "[2026-08-21 05:04:31,218] [INFO] [torch_checkpoint_engine.py:29:load] [Torch] Loading "
        "checkpoint from /out/global_step100/mp_rank_00_model_states.pt...",
        {"resumed": {"step": "100"}},
    ),
    Line(
        "[2026-08-21 05:04:31,218] [INFO] [torch_checkpoint_engine.py:29:load] [Torch] Loading "
        "checkpoint from /out/global_step100/zero_pp_rank_0_mp_rank_00_optim_states.pt..."
    ),
    Line(
        "[2026-08-21 05:04:31,218] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint "
        "global_step200 is about to be saved!",
        {"saving": {"step": "200"}},
    ),
    Line(
        "[2026-08-21 05:04:39,218] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] "
        "Checkpoint global_step200 is ready now!",
        {"saved": {"step": "200"}},
    ),
    Line(
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting "
        "run.",
        {"errored": {}},
    ),
    Line(
        "[2026-08-21 05:04:39,218] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', "
        "'train.py'] exits with return code = -9",
        {"worker_failed": {}},
    ),
    Line("[2026-08-21 05:04:39,218] [INFO] [launch.py:351:main] Process 471 exits successfully."),
)
