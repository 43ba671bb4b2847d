"""Agents that decide by rule: what every result has to be compared with."""
