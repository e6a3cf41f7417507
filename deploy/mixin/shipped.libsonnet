// Written by `make packaging`.
{
  alerts: [
    importstr '../../rules/alerts/checkpoints.yml',
    importstr '../../rules/alerts/containers.yml',
    importstr '../../rules/alerts/disk.yml',
    importstr '../../rules/alerts/gpu.yml',
    importstr '../../rules/alerts/heartbeats.yml',
    importstr '../../rules/alerts/host.yml',
    importstr '../../rules/alerts/inference.yml',
    importstr '../../rules/alerts/logs.yml',
    importstr '../../rules/alerts/notifications.yml',
    importstr '../../rules/alerts/pipeline.yml',
    importstr '../../rules/alerts/progress.yml',
    importstr '../../rules/alerts/remediator.yml',
    importstr '../../rules/alerts/rollouts.yml',
    importstr '../../rules/alerts/workers.yml',
  ],
  recording: [
    importstr '../../rules/recording/run_time.yml',
    importstr '../../rules/recording/runs.yml',
  ],
  dashboards: {
    'trainwarden-fleet.json': import '../../grafana/dashboards/trainwarden-fleet.json',
    'trainwarden-gpu.json': import '../../grafana/dashboards/trainwarden-gpu.json',
    'trainwarden-health.json': import '../../grafana/dashboards/trainwarden-health.json',
    'trainwarden-inference.json': import '../../grafana/dashboards/trainwarden-inference.json',
    'trainwarden-night.json': import '../../grafana/dashboards/trainwarden-night.json',
    'trainwarden-run.json': import '../../grafana/dashboards/trainwarden-run.json',
    'trainwarden-time.json': import '../../grafana/dashboards/trainwarden-time.json',
    'trainwarden-training.json': import '../../grafana/dashboards/trainwarden-training.json',
    'trainwarden-workers.json': import '../../grafana/dashboards/trainwarden-workers.json',
  },
}
