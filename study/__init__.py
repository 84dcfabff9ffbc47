"""Studies of how to train retrieval models: decided, run and recorded."""

__version__ = "0.1.0"
