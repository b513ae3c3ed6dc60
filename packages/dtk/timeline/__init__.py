"""Timelines: who did what when, and what was held; written for viewers, pages, papers and terminals.

Knows nothing of what the spans stand for. A simulated schedule, a simulated or a measured run and a cluster's
ranks all become a `Timeline`; `save` writes it as Chrome trace JSON (which Perfetto opens), SVG or PNG, and
`dtk.timeline.terminal` prints it.
"""

from dtk.timeline.model import Counter, Flow, Span, Timeline, Track
from dtk.timeline.saving import save

__all__ = ["Counter", "Flow", "Span", "Timeline", "Track", "save"]
