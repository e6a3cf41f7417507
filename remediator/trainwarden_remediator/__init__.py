"""Takes alerts from Alertmanager, decides, acts, verifies, and writes down what it did."""
