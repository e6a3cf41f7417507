from __future__ import annotations

import pytest

from trainwarden_exporter.runtime.redaction import REDACTED, redact, redact_command

SECRET = "s3cr3t-Value"


@pytest.mark.parametrize(
    "line",
    [
        f"WANDB_API_KEY={SECRET} python train.py",
        f"--hf-token {SECRET} --lr 1e-4",
        f"--hf_token={SECRET}",
        f"{{'password': '{SECRET}', 'lr': 1}}",
        f'{{"api_key":"{SECRET}","n":2}}',
        f"Authorization: Bearer {SECRET}",
        f"sent header authorization=bearer {SECRET}",
        f"cloning https://ann:{SECRET}@example.org/models.git",
        f"AWS_SECRET_ACCESS_KEY: '{SECRET}'",
        f"export DB_PASSWD={SECRET}; run",
        f"client.token => {SECRET}",
    ],
)
def test_what_is_named_like_a_secret_goes(line: str) -> None:
    assert SECRET not in redact(line)
    assert REDACTED in redact(line)


@pytest.mark.parametrize(
    "shape",
    [
        "hf_abcdefghijklmnopqrst",
        "sk-abcdefghijklmnopqrstuv",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    ],
)
def test_what_looks_like_a_secret_goes_wherever_it_stands(shape: str) -> None:
    assert redact(f"logged in with {shape}, good") == f"logged in with {REDACTED}, good"


@pytest.mark.parametrize(
    "line",
    [
        "step 12 loss 0.5 reward 0.1",
        "max_tokens=4096 prompt_tokens: 1_024, tokens/s: 33.1",
        "tokenizer=/models/tokenizer.json",
        "KeyError: 'lm_head.weight'",
        "the token was refused",
        "ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")",
        "http://127.0.0.1:8000/v1/models",
    ],
)
def test_what_an_operator_needs_stays(line: str) -> None:
    assert redact(line) == line


def test_a_value_that_is_an_argument_of_its_own_goes() -> None:
    command = ["python", "train.py", "--api-key", SECRET, f"--password={SECRET} and more", "--lr"]
    reported = redact_command([*command, "1", "--max-tokens", "4096"])
    assert SECRET not in reported
    assert reported.startswith("python train.py --api-key")
    assert reported.endswith("--lr 1 --max-tokens 4096")


def test_an_option_that_takes_no_value_hides_nothing() -> None:
    assert redact_command(["x", "--use-token", "--next", "a"]) == "x --use-token --next a"
