"""Where a study is recorded run by run: MLflow, which no other room has a word of."""

PACKAGE = "mlflow-skinny"
"""The installed package that records."""
