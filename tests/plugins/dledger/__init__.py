"""Tests of the plugin dledger."""
