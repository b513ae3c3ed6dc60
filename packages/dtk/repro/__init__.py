"""Run the papers' claims on this machine and judge them: claims as data, tolerance classes, a report.

`claims/<paper>.toml` says what is claimed, `checks/<paper>.py` measures it, `tolerance` judges it, `runner`
goes through the claims and loses nothing when it is killed, `report` writes one page for people.

Source: the artifact-evaluation practice of systems conferences. Left out: a history over many runs.
"""

__all__: list[str] = []
