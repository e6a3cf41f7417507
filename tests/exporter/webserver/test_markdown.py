"""Reports and runbooks as HTML: their structure is kept, and no text of theirs becomes a tag."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden_exporter.webserver.markdown import inline, plain_text, to_html

DOCUMENT = """\
# Incident 2: TrainingInferenceDown \u2014 `demo/inference`

**Healed** automatically,
17 s after the alert started.

| time | what |
|---|---|
| 07:47 | `a<b` \\| c |

- first
- second line
  goes on
    - below

1. **Restart** at once
    - 07:47:45 started: `python x.py`

    amtool silence add

```sh
echo "<b>" `x`
```

<details>
<summary>Evidence &lt;1&gt;</summary>

Text.

</details>
"""


class Tags(HTMLParser):
    """The tags that a browser sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)


def test_every_part_of_a_report_is_rendered() -> None:
    opening, *blocks, closing = to_html(DOCUMENT).splitlines()
    assert (opening, closing) == ("<article>", "</article>")
    assert blocks == [
        "<h2>Incident 2: TrainingInferenceDown \u2014 <code>demo/inference</code></h2>",
        "<p><strong>Healed</strong> automatically, 17 s after the alert started.</p>",
        (
            '<table><thead><tr><th scope="col">time</th><th scope="col">what</th></tr></thead>'
            '<tbody><tr><td data-label="time"><span>07:47</span></td>'
            '<td data-label="what"><span><code>a&lt;b</code> | c</span></td></tr></tbody></table>'
        ),
        "<ul><li>first</li><li>second line goes on<ul><li>below</li></ul></li></ul>",
        (
            "<ol><li><strong>Restart</strong> at once"
            "<ul><li>07:47:45 started: <code>python x.py</code></li></ul></li></ol>"
        ),
        "<pre><code>amtool silence add</code></pre>",
        "<pre><code>echo &quot;&lt;b&gt;&quot; `x`</code></pre>",
        "<details>",
        "<summary>Evidence &lt;1&gt;</summary>",
        "<p>Text.</p>",
        "</details>",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("waiting\\_for\\_rollouts", "waiting_for_rollouts"),
        ("a &lt;b&gt; & c", "a &lt;b&gt; &amp; c"),
        ("<https://a.example/x>", '<a href="https://a.example/x">https://a.example/x</a>'),
        ("[name](https://a.example)", '<a href="https://a.example">name</a>'),
        ("[name](javascript:alert)", "name"),
        ("<javascript:alert>", "&lt;javascript:alert&gt;"),
        ("``a ` b``", "<code>a ` b</code>"),
        ("**open", "<strong>open</strong>"),
    ],
)
def test_a_line_is_rendered(text: str, expected: str) -> None:
    assert inline(text) == expected


def test_the_text_alone_is_that_of_a_title() -> None:
    assert plain_text("Incident 2 \u2014 `a<b` &amp; **c**") == "Incident 2 \u2014 a<b & c"


@given(
    st.lists(st.text(st.sampled_from("<>ab/\\`*|-1. #[]()!\"'&\t"), max_size=40), max_size=12).map(
        "\n".join
    )
)
def test_no_text_becomes_a_tag_that_is_not_ours(text: str) -> None:
    ours = {"h2", "h3", "h4", "h5", "h6", "p", "ul", "ol", "li", "pre", "code", "strong", "a"}
    ours |= {"table", "thead", "tbody", "tr", "th", "td", "span", "details", "summary", "article"}
    rendered = to_html(text)
    assert Tags(rendered).seen <= ours
    assert rendered.count("<a ") == 0


@pytest.mark.parametrize("table", ["|---|", "| --- | :-: |\n|---|", "|---|\n\ntext"])
def test_a_table_without_rows_is_text(table: str) -> None:
    page = to_html(table)
    assert "---|" in page
    assert "<table" not in page


@given(
    st.lists(
        st.text(alphabet="|-:`*#>< []()\\!1.ab\t", max_size=12)
        | st.sampled_from(
            ["<details>", "</details>", "<summary>a</summary>", "```", "    - a", ""]
        ),
        max_size=12,
    ).map("\n".join)
)
def test_any_document_of_markup_is_rendered(document: str) -> None:
    HTMLParser().feed(to_html(document))
