"""sglang-router and its successor smg: /health is 200 whatever happens, /readiness means it.

Read from 0.3.2; it looks at its servers each 60 s.
"""

from __future__ import annotations

from trainwarden_exporter.inference.engines.routers import Router


class SglangRouter(Router):
    name = "sglang_router"
    health = "smg_worker_health"
    active = "smg_worker_requests_active"
    answered = "smg_router_upstream_responses_total"
    wanted = (health, active, answered)
