"""Examples and exit statuses of the forwarded subcommands, below what their programs print."""

from __future__ import annotations

_FILE = """\
Without --config.file it uses the file of the stack that `trainwarden up` runs, else remediator.yml
in this folder.
"""

HELP = {
    "discover": """\
examples:
  trainwarden discover
  trainwarden discover /data/outputs > exporter.yml
  trainwarden discover /data/outputs --output /srv/run
  trainwarden discover --json | jq -r '.runs[].name'

exit status: 0, 1 if no run was found, 2 if PATH is no folder or a file of --output exists""",
    "checkpoints": """\
examples:
  trainwarden checkpoints
  trainwarden checkpoints grpo                 also after `trainwarden stop grpo`
  trainwarden checkpoints --json | jq -r '.[].newest_proved'
  trainwarden checkpoints --config.file /srv/run/exporter.yml

exit status:
  0  a resume of these runs takes no damaged checkpoint
  1  a resume would take a damaged one
  2  the configuration cannot be read, or there is no such run""",
    "preflight": """\
examples:
  trainwarden preflight
  trainwarden preflight --config.file /srv/run/exporter.yml --gpu.memory-free 70GiB
  trainwarden preflight --json | jq -r '.findings[] | select(.result == "refuse").observed'

exit status:
  0  a run can start
  1  it cannot
  2  the configuration cannot be read, or there is no such run""",
    "stacks": """\
examples:
  trainwarden stacks
  trainwarden stacks grpo
  trainwarden stacks --json | jq -r '.[].processes[].text'

exit status: 0, or 2 if the configuration cannot be read or there is no such run""",
    "journal": f"""\
{_FILE}
examples:
  trainwarden journal --since 12h
  trainwarden journal --follow
  trainwarden journal --json -n 100

exit status: 0, or 1 if there is no journal""",
    "report": f"""\
{_FILE}
examples:
  trainwarden report > night.md
  trainwarden report --since 3d --full
  trainwarden report 12
  trainwarden report --json | jq -r '.incidents[] | select(.state == "person").summary'

exit status: 0, or 1 if there is no journal, or no such incident""",
    "hold": f"""\
{_FILE}
examples:
  trainwarden hold 'new driver'
  trainwarden hold --run grpo --for 2h 'debugging'
  trainwarden hold --list --json

exit status: 0, or 1 if it cannot be written""",
    "resume": f"""\
{_FILE}
examples:
  trainwarden resume
  trainwarden resume --run grpo --worker trainer

It tries again what was given up, and names it. Without --run it lifts all holds and resets the
circuit breaker; what was given up in several runs is tried again only by the name of each.

exit status: 0, or 1 if it cannot be written""",
    "clean-gpu": f"""\
{_FILE}
examples:
  trainwarden clean-gpu
  trainwarden clean-gpu --end

exit status: 0, or 1 if the holders cannot be known or one could not be ended""",
    "approve": f"""\
{_FILE}
examples:
  trainwarden approve 12
  trainwarden approve grpo/trainer

exit status: 0, or 1 if there is no such incident or no proposed action""",
    "notify-test": f"""\
{_FILE}
examples:
  trainwarden notify-test
  trainwarden notify-test phone

exit status: 0 if all messages were sent, 1 if not""",
    "runbook": """\
examples:
  trainwarden runbook TrainingStepStalled

exit status: 0, or 1 if there is no such alert""",
}
