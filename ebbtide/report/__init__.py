"""A job's report: figures for programs (report.json) and a page for people (report.html).

`collect` asks the API; everything else is a pure function of what it found.
"""

from ebbtide.report.data import ReportData, collect
from ebbtide.report.figures import render_json
from ebbtide.report.page import render_html

__all__ = ["ReportData", "collect", "render_html", "render_json"]
