"""Every query of every board rests on what the programs declare and the rules record.

A panel about a metric that nobody exports shows nothing, for ever, and looks like peace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser as promql
import pytest

from boards import BOARDS, why
from boards.board import Board
from boards.panels import Panel
from boards.queries import SCOPES, Query
from boards.queries import promql as as_grafana_gets_it
from boards.tables import Table
from boards.variables import OF_A_RUN
from boards.verdict import FIRING
from demo_reasons import OF_THE_DEMO
from labelling import Labels, MismatchError, groups, labels_of, names_of, own_metrics, selectors
from previewing.asking import Window, filled, parts

LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
WORDS = Window(0, 3600).words
LEVELS = {
    "trainwarden_remediator_outcomes_total": "its curve begins with the journal, which says so",
    "trainwarden_remediator_actions_total": "as above",
    "trainwarden_log_matches_total": "the table says since when it counts",
    "trainwarden_gpu_ecc_errors_total": "it counts from the driver's start; one is too many",
}
"""Counters that are also shown as they are, and why."""
LIKE_RESTARTS = {"trainwarden_worker_exits_total"}
"""Counted over the same time as restarts, which are shown beside them."""
OF_NO_BOX = {
    "up": "all that Prometheus scrapes, or a box",
    "ALERTS": "the alert that always fires is of no box",
    "prometheus_rule_evaluation_failures_total": "there is one Prometheus",
    "alertmanager_notifications_failed_total": "there is one Alertmanager",
}
"""Metrics that need not be chosen by box, and why."""


def asked() -> Iterator[tuple[Board, Panel, Query]]:
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                yield board, panel, query


def chosen(board: Board) -> dict[str, str]:
    """Something for each variable that the board has."""
    return {variable.name: "x" for variable in board.variables} | WORDS


def parsed(board: Board, text: str) -> Any:
    """The expression. KeyError for a variable that the board does not have."""
    return promql.parse(filled(as_grafana_gets_it(text), chosen(board)))


def test_every_query_rests_on_declared_metrics_and_labels(known: Mapping[str, Labels]) -> None:
    for board, panel, query in asked():
        try:
            labels_of(parsed(board, query.text), known)
        except (MismatchError, KeyError, ValueError) as error:
            pytest.fail(f"{board.uid}: {panel.title}: {error}")


def test_every_variable_and_mark_rests_on_them_too(known: Mapping[str, Labels]) -> None:
    for board in BOARDS:
        for variable in board.variables:
            selector, label = parts(variable.query)
            assert label == variable.source
            assert label in (labels_of(parsed(board, selector), known) or ()), variable.name
        for mark in board.marks:
            carried = labels_of(parsed(board, mark.text), known) or frozenset()
            assert {*LABEL.findall(mark.title)} <= carried, mark.name


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("trainwarden_worker_rss_bytes", "nobody declares"),
        ('{__name__=~"trainwarden_(gpu_up|gpu_down)"}', "nobody declares"),
        ('trainwarden_gpu_up{worker="a"}', "no label"),
        ("trainwarden_worker_processes - trainwarden_host_cpus", "never match"),
        ("up * on (gpu) trainwarden_gpu_up", "one side has not"),
        ("trainwarden_gpu_up / ignoring (gpu) trainwarden_host_cpus", "never match"),
        ("sum by (run) (trainwarden_gpu_up)", "grouped by"),
        ('label_join(trainwarden_gpu_up, "what", " ", "worker")', "joins"),
    ],
)
def test_a_query_that_can_never_be_answered_is_found(
    known: Mapping[str, Labels], expression: str, fault: str
) -> None:
    with pytest.raises(MismatchError, match=fault):
        labels_of(promql.parse(expression), known)


def test_legends_name_labels_that_the_series_have(known: Mapping[str, Labels]) -> None:
    for board, panel, query in asked():
        if not isinstance(panel, Table):
            carried = labels_of(parsed(board, query.text), known) or frozenset()
            assert {*LABEL.findall(query.legend)} <= carried, (board.uid, panel.title)


def test_legends_tell_runs_and_hosts_apart(known: Mapping[str, Labels]) -> None:
    for board, panel, query in asked():
        # The first board is about one run, and a table has columns for both.
        if isinstance(panel, Table) or board.uid == "trainwarden-run":
            continue
        carried = labels_of(parsed(board, query.text), known) or frozenset()
        own = next((label for label in ("run", "instance") if label in carried), None)
        assert own is None or own in LABEL.findall(query.legend), (board.uid, panel.title)


def test_the_columns_of_a_table_are_all_there_is_to_show(known: Mapping[str, Labels]) -> None:
    for board in BOARDS:
        for table in (panel for panel in board.panels if isinstance(panel, Table)):
            carried = {
                label
                for query in table.queries
                for label in labels_of(parsed(board, query.text), known) or ()
            }
            shown = {column.name for column in table.columns}
            values = {query.legend for query in table.queries}
            assert shown <= carried | values, (board.uid, table.title)
            assert carried - {"job"} <= shown, (board.uid, table.title)


def test_the_queries_of_one_table_can_be_merged_into_rows(known: Mapping[str, Labels]) -> None:
    for board in BOARDS:
        for table in (panel for panel in board.panels if isinstance(panel, Table)):
            nodes = [parsed(board, query.text) for query in table.queries]
            if len(nodes) > 1:
                # A metric's own name is a label as well, and another one for each query.
                assert not any(keeps_name(node) for node in nodes), (board.uid, table.title)
                sets = {labels_of(node, known) or frozenset() for node in nodes}
                widest = max(sets, key=len)
                assert all(labels <= widest for labels in sets), (board.uid, table.title)


def keeps_name(node: Any) -> bool:
    """Whether the answers still have the name of a metric."""
    match node:
        case promql.VectorSelector():
            return True
        case promql.ParenExpr():
            return keeps_name(node.expr)
        case promql.BinaryExpr():
            operator = str(node.op)
            if operator == "or":
                return keeps_name(node.lhs) or keeps_name(node.rhs)
            filters = operator in ("and", "unless", "==", "!=", ">", "<", ">=", "<=")
            return filters and keeps_name(node.lhs)
        case promql.Call():
            return node.func.name.startswith(("label_", "last_over", "sort"))
        case _:
            return False


def test_counters_are_shown_by_how_fast_they_grow() -> None:
    counters = {name for name, metric in own_metrics().items() if metric.type == "counter"}
    for board, panel, query in asked():
        for name in bare(parsed(board, query.text)):
            assert name not in counters or name in LEVELS, (board.uid, panel.title)


def bare(node: Any) -> Iterator[str]:
    """The metrics of selectors that no function is over."""
    match node:
        case promql.VectorSelector():
            yield from names_of(node)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.AggregateExpr():
            yield from bare(node.expr)
        case promql.BinaryExpr():
            yield from bare(node.lhs)
            # What comes after `unless` only takes series away.
            if str(node.op) != "unless":
                yield from bare(node.rhs)
        case promql.Call():
            for argument in node.args:
                yield from bare(argument)


def test_rates_are_taken_over_what_grafana_knows_to_be_enough(
    alerts: list[dict[str, Any]],
) -> None:
    rules = " ".join(" ".join(rule["expr"].split()) for rule in alerts)
    for board, panel, query in asked():
        for function, inner in re.findall(
            r"\b(rate|irate|increase|changes|deriv)\(([^()]*)\)", query.promql
        ):
            window = inner.strip().rpartition("[")[2].rstrip("]")
            if function in ("rate", "irate"):
                assert window == "$__rate_interval", (board.uid, panel.title)
            elif window != "$__range":
                # A fixed window is that of the alert that the panel is about.
                metric = inner.strip().partition("{")[0]
                like = rf"\b{function}\( ?{metric}[^()]*\[{window}\]"
                exempt = function == "deriv" or metric in LIKE_RESTARTS
                assert exempt or re.search(like, rules), (board.uid, panel.title)


def test_everything_is_chosen_by_its_box() -> None:
    for board, panel, query in asked():
        for selector in selectors(promql.parse(filled(query.promql, chosen(board)))):
            by = {matcher.name for matcher in selector.matchers.matchers}
            names = names_of(selector)
            assert "instance" in by or set(names) <= set(OF_NO_BOX), (board.uid, panel.title)


def test_the_words_for_what_is_chosen_are_replaced() -> None:
    for _, _, query in asked():
        assert not re.search(rf"\b({'|'.join(SCOPES)})\b[,}}]", query.promql), query.promql
    assert as_grafana_gets_it("up{BOX}") == 'up{instance=~"$instance"}'
    assert as_grafana_gets_it('x{RUN,a="BOX"}').endswith('run=~"$run",a="BOX"}')


def test_alerts_are_those_of_the_host_and_of_its_remediator() -> None:
    text = filled(as_grafana_gets_it(FIRING), {"host": "127\\\\.0\\\\.0\\\\.1", "run": "demo"})
    (selector,) = selectors(promql.parse(text))
    patterns = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
    for instance in ("127.0.0.1:10977", "127.0.0.1:10978", "127.0.0.1", ""):
        assert re.fullmatch(patterns["instance"], instance), instance
    assert not re.fullmatch(patterns["instance"], "127.0.0.10:10977")
    assert re.fullmatch(patterns["run"], "")
    assert not re.fullmatch(patterns["run"], "demo2")


def test_every_recorded_series_of_a_run_is_declared_before_it_is_shown() -> None:
    recorded = {rule["record"] for group in groups("recording") for rule in group["rules"]}
    used = {
        name
        for board, _, query in asked()
        for selector in selectors(parsed(board, query.text))
        for name in names_of(selector)
    }
    assert {name for name in used if ":" in name} <= recorded


def test_every_run_is_found_by_one_of_its_metrics(known: Mapping[str, Labels]) -> None:
    for name in OF_A_RUN:
        assert "run" in known[f"trainwarden_{name}"]


def test_reasons_for_nothing_are_used_and_those_of_the_demo_are_reasons() -> None:
    reasons = {name: text for name, text in vars(why).items() if isinstance(text, str)}
    reasons = {name: text for name, text in reasons.items() if name.isupper()}
    used = {query.empty_when for _, _, query in asked()}
    used |= {variable.empty_when for board in BOARDS for variable in board.variables}
    used |= {mark.empty_when for board in BOARDS for mark in board.marks}
    assert used - {""} == set(reasons.values())
    assert used >= OF_THE_DEMO
