"""How the inference engines that many frameworks start look among the processes."""

from __future__ import annotations

from trainwarden_exporter.layouts.base import RoleLayout

VLLM = RoleLayout(
    "inference",
    r"\bvllm serve\b|-m vllm\.entrypoints\.|\bVLLM::|\bvllm-serve\b|ray::vLLMHttpServer",
    engine="vllm",
)
SGLANG = RoleLayout(
    "inference",
    r"-m sglang\.launch_server|\bsglang::|\bsglang serve\b|ray::SGLang(?:HttpServer|Engine)",
    engine="sglang",
)
