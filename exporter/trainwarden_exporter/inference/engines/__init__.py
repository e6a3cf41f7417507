"""The inference engines that can be asked: one file for each, and the list of them."""

from __future__ import annotations

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engines.base import Engine
from trainwarden_exporter.inference.engines.generic import Generic
from trainwarden_exporter.inference.engines.llama_cpp import LlamaCpp
from trainwarden_exporter.inference.engines.sglang import Sglang
from trainwarden_exporter.inference.engines.sglang_router import SglangRouter
from trainwarden_exporter.inference.engines.tgi import Tgi
from trainwarden_exporter.inference.engines.triton import Triton
from trainwarden_exporter.inference.engines.vllm import Vllm
from trainwarden_exporter.inference.engines.vllm_router import VllmRouter

ENGINES: tuple[type[Engine], ...] = (
    Vllm,
    Sglang,
    Tgi,
    LlamaCpp,
    Triton,
    SglangRouter,
    VllmRouter,
    Generic,
)


def build_engine(
    name: str, config: ServerConfig, url: str, metrics_url: str | None = None
) -> Engine:
    """The engine of that name, for the server at `url`. Raises ValueError for an unknown name."""
    for engine in ENGINES:
        if engine.name == name:
            return engine(config, url, metrics_url)
    known = ", ".join(engine.name for engine in ENGINES)
    raise ValueError(f"no engine is named {name}; known are {known}")
