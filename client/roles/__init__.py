"""The methods that clients, producers and consumers of all styles have in common."""
