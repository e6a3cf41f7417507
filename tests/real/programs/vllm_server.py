"""Becomes a real vLLM on the CPU that serves random weights. Arguments: steps, seconds, port.

The first two are for the tiny model. Further arguments are further names of the served model.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

VLLM = Path(sys.prefix) / "vllm" / "bin" / "vllm"
MODEL = Path("model")
port, *names = sys.argv[3:]
OPTIONS = (
    *("--host", "127.0.0.1", "--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "128", "--max-num-seqs", "8", "--served-model-name", "tiny", *names),
)
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
}

if not MODEL.exists():
    from tiny import model_and_tokenizer

    model, tokenizer = model_and_tokenizer()
    tokenizer.save_pretrained(MODEL)
    model.save_pretrained(MODEL)
kept = {key: value for key, value in os.environ.items() if "PYTHON" not in key}
command = (str(VLLM), "serve", str(MODEL.absolute()), "--port", port, *OPTIONS)
os.execve(VLLM, command, kept | ENVIRONMENT)  # noqa: S606 - its process is to be the server
