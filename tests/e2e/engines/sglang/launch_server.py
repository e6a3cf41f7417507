"""Stands where SGLang has its launcher, so that a test's server has a command line as SGLang's.

python -m sglang.launch_server --model-path /models/qwen --port 30000
"""

from __future__ import annotations

import argparse
import sys

import fake_serving

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--port", required=True)
    options = parser.parse_args()
    sys.argv[1:] = ["--engine", "sglang", "--port", options.port]
    fake_serving.main()
