"""Texts that clients may send as names, each of which some page, table or shell has obeyed before."""

from typing import Final

SCRIPT: Final = "window.obeyed=(window.obeyed||0)+1"

_MARKUP: Final = (
    f"<script>{SCRIPT}</script>",
    f"</script><script>{SCRIPT}</script>",
    f"<img src=x onerror={SCRIPT}>",
    f"<svg onload={SCRIPT}>",
    f'" autofocus onfocus={SCRIPT} x="',
    f"' onmouseover={SCRIPT} x='",
    f'<a href="javascript:{SCRIPT}">a</a>',
    f"javascript:{SCRIPT}",
    f"<iframe srcdoc='<script>parent.{SCRIPT}</script>'></iframe>",
    f"<style>@import '//x'</style><b style=animation:x onanimationstart={SCRIPT}>",
    f"<math><mtext><script>{SCRIPT}</script>",
    "<b>bold</b><br><i>new line</i>",
    "<!-- <script>",
    "]]><x>",
    "&lt;script&gt;&amp;&quot;&#60;b&#62;",
    "<a href='http://127.0.0.1:9/'>x</a>",
    "<image href='http://127.0.0.1:9/x.png'/>",
    "<span style='color:red'>x</span>",
    "<sup>1</sup><sub>2</sub><em>x</em>",
    "%{x}%{customdata[0]}<extra></extra>",
)
_OTHERS: Final = (
    "{{ 7 * 7 }}{% for x in y %}",
    "${7*7}`${alert(1)}`",
    "__proto__",
    "constructor",
    "$& $1 \\1 \\u003cscript\\u003e",
    '=HYPERLINK("http://127.0.0.1:9")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\u2028\u2029\u202eabc\u200b",
    "\x00\x1b[31mred\x07\r\n\t",
    "'; DROP TABLE groups; --",
    "../../../../etc/passwd",
    "file:///x?y#z",
    "\ufeff\ufffe\ud7ff",
    "z\u0301\u0302\u0303" * 8,
    "x" * 3000,
    "%3Cscript%3E%00",
    "${env:HOME}",
    "null",
    "-1e999",
    "\U0001f4a9 \u05d0\u05d1 \u0645",
)

HOSTILE: Final = tuple(
    text for start in ("", " ", "<", "\"'>", "a&") for text in (f"{start}{text}" for text in (*_MARKUP, *_OTHERS))
)
"""200 of them."""
assert len(set(HOSTILE)) == 200
