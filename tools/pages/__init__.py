"""Generators of the pages that are made from tables: SETTINGS, CODES, HOOKS, COMMANDS."""
