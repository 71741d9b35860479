"""Random tests: how many examples they try, and the seed of a run.

`make test` tries the same examples each time. CI takes the seed in BERTH_TEST_SEED, or the
begin of the commit's id, and prints it; `make test MORE="--hypothesis-seed=N"` repeats that run.
`MORE="--hypothesis-profile=long"` tries more examples.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

FACTOR = 8  # of the examples of a long run
SEED = "--hypothesis-seed"
given_seed: int | None = None
PHASES = [Phase.generate]

# No test is timed.
settings.register_profile(
    "berth",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("berth"))
settings.load_profile("berth")


def is_long() -> bool:
    return settings.get_current_profile_name().startswith("long")


def examples(short: int, long: int = 0) -> int:
    """Examples of a test in a usual run, or in a long run (without `long`: FACTOR times as
    many).
    """
    return (long or short * FACTOR) if is_long() else short


def run_steps(machine: type[RuleBasedStateMachine], *, short: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(short),
            phases=PHASES,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A given seed counts; without one, each example comes again in the next run."""
    global given_seed
    if config.getoption(SEED) is not None:
        given_seed = int(config.getoption(SEED))
        name = settings.get_current_profile_name()
        seeded = settings(settings.get_profile(name), derandomize=False, database=None)
        settings.register_profile(f"{name}-seeded", seeded)
        settings.load_profile(f"{name}-seeded")


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption(SEED)
    return None if seed is None else f'seed of random tests: {seed} (MORE="{SEED}={seed}")'


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    seed = config.getoption(SEED)
    failed = terminalreporter.stats.get("failed", [])
    if seed is not None and failed:
        text = f'Random tests of this run had the seed {seed}: make test MORE="{SEED}={seed}"'
        terminalreporter.write_line(text)
