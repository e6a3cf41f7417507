"""vllm-router: /readiness is 503 without a healthy server.

Read from 0.1.17, where `vllm_router_active_workers` stayed 1 with none healthy.
"""

from __future__ import annotations

from trainwarden_exporter.inference.engines.routers import Router


class VllmRouter(Router):
    name = "vllm_router"
    health = "vllm_router_worker_health"
    active = "vllm_router_running_requests"
    answered = "vllm_router_processed_requests_total"
    wanted = (health, active, answered)
