"""Where a study is recorded run by run: MLflow, which no other room imports or speaks to."""

PACKAGE = "mlflow-skinny"
"""The installed package that records."""
