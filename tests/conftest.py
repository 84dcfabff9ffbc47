"""Options of the test suite."""


def pytest_addoption(parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write tests/golden/ anew instead of comparing")
