"""What to keep and what to fetch: one file a policy."""

from dtk.scout.policies.quest import QuestSelection
from dtk.scout.policies.recall import RecallTimer

__all__ = ["QuestSelection", "RecallTimer"]
