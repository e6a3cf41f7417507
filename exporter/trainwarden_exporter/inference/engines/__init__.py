"""The supported inference engines: one module for each."""

from __future__ import annotations

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engines.base import InferenceEngine
from trainwarden_exporter.inference.engines.generic import GenericEngine
from trainwarden_exporter.inference.engines.llama_cpp import LlamaCpp
from trainwarden_exporter.inference.engines.routers import SglangRouter, VllmRouter
from trainwarden_exporter.inference.engines.sglang import Sglang
from trainwarden_exporter.inference.engines.tgi import Tgi
from trainwarden_exporter.inference.engines.triton import Triton
from trainwarden_exporter.inference.engines.vllm import Vllm

ENGINES: tuple[type[InferenceEngine], ...] = (
    *(Vllm, Sglang, Tgi, LlamaCpp, Triton, SglangRouter, VllmRouter, GenericEngine),
)


def build_engine(
    name: str, config: ServerConfig, url: str, metrics_url: str | None = None
) -> InferenceEngine:
    """Returns the engine `name` for the server at `url`. Raises ValueError if unknown."""
    for engine in ENGINES:
        if engine.name == name:
            return engine(config, url, metrics_url)
    known = ", ".join(engine.name for engine in ENGINES)
    raise ValueError(f"unknown engine {name}; known: {known}")
