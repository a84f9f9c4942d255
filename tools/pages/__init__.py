"""Generators of the pages SETTINGS, CODES, HOOKS and COMMANDS, which are made from tables."""
