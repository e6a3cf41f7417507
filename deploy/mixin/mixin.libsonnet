// Trainwarden as a mixin (https://monitoring.mixins.dev): the shipped rules and boards, from their own files.
//
// Numbers are no part of _config: they are limits in exporter.yml, which the rules compare with.
local shipped = import 'shipped.libsonnet';
local groups(files) = std.flatMap(function(text) std.parseYaml(text).groups, files);

{
  _config+:: {
    // Alerts to leave out, by name. TrainingWatchdog must stay: the remediator listens for it.
    disabledAlerts: [],
    // Another severity, by name of the alert: { TrainingErrorStorm: 'info' }. Where two alerts have the name,
    // both get it; the worse then no longer mutes the milder.
    severities: {},
    // Another wait in place of the `for`, by name: { TrainingErrorStorm: '5m' }.
    waits: {},
    // What every alert carries besides.
    alertLabels: {},
    // Where the runbooks are, with %s for the name of the alert; where the shipped ones are when null.
    runbookURLPattern: null,
    // What the links to boards begin with: 'https://grafana.example.org'.
    grafanaURL: '',
  },

  local config = self._config,
  local known = [rule.alert for group in groups(shipped.alerts) for rule in group.rules],
  local named = config.disabledAlerts + std.objectFields(config.severities) + std.objectFields(config.waits),
  local unknown = std.filter(function(name) !std.member(known, name), named),

  local changed(rule) = rule {
    [if std.objectHas(config.waits, rule.alert) then 'for']: config.waits[rule.alert],
    labels+: config.alertLabels + (
      if std.objectHas(config.severities, rule.alert) then { severity: config.severities[rule.alert] } else {}
    ),
    annotations+: {
      dashboard_url: config.grafanaURL + super.dashboard_url,
      runbook_url: if config.runbookURLPattern == null then super.runbook_url
      else std.strReplace(config.runbookURLPattern, '%s', rule.alert),
    },
  },

  prometheusAlerts+:: {
    assert unknown == [] : '_config names alerts that there are none of: ' + std.join(', ', unknown),
    groups+: std.filter(
      function(group) group.rules != [],
      [
        group { rules: [changed(rule) for rule in group.rules if !std.member(config.disabledAlerts, rule.alert)] }
        for group in groups(shipped.alerts)
      ]
    ),
  },
  prometheusRules+:: { groups+: groups(shipped.recording) },
  grafanaDashboards+:: shipped.dashboards,
}
