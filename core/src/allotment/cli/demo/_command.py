"""The command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from allotment import configuration, registry
from allotment.cli._allocators import print_allocators, row_of
from allotment.cli._devices import DeviceRow, device_row, platform_facts, print_devices
from allotment.cli._output import AsJson, PlatformName, print_json
from allotment.cli.demo._narration import Narrator
from allotment.cli.demo._stage import stage
from allotment.cli.demo._trial import Trial, TrialRun, candidates
from allotment.configuration import Configuration, PluginValues
from allotment.trace import TraceSummary, read, shipped_trace, summarize
from allotment.units import format_bytes

if TYPE_CHECKING:
    from allotment.cli.demo._stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The demo's outcome, as ``--json`` prints it.

    Parameters
    ----------
    ok
        Whether at least one allocator was tried and every check came out right.
    simulated
        Whether the GPUs are simulated.
    platform, devices
        As ``allotment devices --json`` has them.
    trace
        What the trace asks for, before sizes are divided.
    allocators
        How each allocator did.
    passed_over
        Why the others were not tried, by name.
    """

    ok: bool
    simulated: bool
    platform: dict[str, str]
    devices: list[DeviceRow]
    trace: TraceSummary
    allocators: list[Trial]
    passed_over: dict[str, str]


def demo(platform: PlatformName = None, as_json: AsJson = False) -> None:
    """Show what Allotment does: each allocator, chosen by name in a file, serves arrays and a real trace.

    Without a GPU it runs on two simulated ones. Nothing of yours is changed: the files lie in a temporary folder. The
    exit code is 1 if a check fails.

    Keys of --json: ok, simulated, platform, devices, trace (events, allocations, peak_requested, live_at_end, streams),
    allocators (allocator, device, memory_kind, config, seconds, allocations, failures, allocations_per_second,
    peak_requested, peak_reserved, size_divisor, checks_passed, checks, failed_checks), passed_over. Sizes are in bytes.
    """
    narrator = Narrator(quiet=as_json)
    plugins = configuration.current().values.plugins
    with stage(platform) as here, configuration.use(_only(plugins)):
        result = _play(here, plugins, narrator)
        if as_json:
            print_json(result)
    if not result.ok:
        raise typer.Exit(1)


def _only(plugins: PluginValues) -> Configuration:
    """Return a configuration that says which plugins the user allows, and nothing else."""
    return Configuration.isolated(plugins={"allow": plugins.allow, "deny": plugins.deny})


def _play(here: Stage, plugins: PluginValues, narrator: Narrator) -> DemoResult:
    trace = list(read(shipped_trace()))
    summary = summarize(trace)
    devices = [device_row(device) for device in here.registry]
    narrator.line(here.announcement)
    narrator.step("1  Devices", "A device is a place for memory: the host (cpu), or a GPU (cuda:0, cuda:1, ...).")
    print_devices(narrator.out, devices)
    narrator.step("2  Allocators", "An allocator supplies memory. Each is a plugin with a name, and not yet imported.")
    print_allocators(narrator.out, [row_of(record) for record in registry.list_allocators()])
    usable, passed_over = candidates(here)
    _announce_trials(summary, narrator)
    with TemporaryDirectory(prefix="allotment-demo-") as folder:
        runs = [TrialRun(candidate, Path(folder), trace, plugins) for candidate in usable]
        trials = [_try(run, summary, narrator) for run in runs]
    _conclude(trials, passed_over, here, narrator)
    return DemoResult(
        ok=bool(trials) and not any(trial.failed_checks for trial in trials),
        simulated=here.is_simulated,
        platform=platform_facts(here.registry),
        devices=devices,
        trace=summary,
        allocators=trials,
        passed_over=passed_over,
    )


def _announce_trials(summary: TraceSummary, narrator: Narrator) -> None:
    narrator.step(
        "3  One program, each allocator in turn",
        "A file named allotment.toml, here in a temporary folder, names the allocator; the program "
        "stays the same. Its arrays are compared with NumPy's. Then the allocator serves a recorded "
        f"training of ResNet-50: {summary.allocations:,} allocations, at most "
        f"{format_bytes(summary.peak_requested)} at once.",
    )


def _try(run: TrialRun, summary: TraceSummary, narrator: Narrator) -> Trial:
    narrator.file(run.candidate, run.file)
    with narrator.progress(summary.events) as on_progress:
        trial = run.run(narrator.checks, on_progress)
    narrator.replayed(trial, summary)
    return trial


def _conclude(trials: list[Trial], passed_over: dict[str, str], here: Stage, narrator: Narrator) -> None:
    narrator.step("4  Result", "The same program and the same trace: only the name in the file was another.")
    narrator.table(trials)
    for name, reason in passed_over.items():
        narrator.line(f"{name} was passed over: {reason}")
    for text in _remarks(trials, here):
        narrator.line(text)
    narrator.step("Next", "What to type to go on from here.")
    narrator.commands(_next_commands(trials, here))


def _remarks(trials: list[Trial], here: Stage) -> list[str]:
    remarks = []
    if here.is_simulated:
        remarks.append("The times are those of the simulation. On a GPU they are the driver's.")
    if any(trial.size_divisor > 1 for trial in trials):
        remarks.append("Where sizes were divided, the full trace would have taken too much of this machine's memory.")
    return remarks


def _next_commands(trials: list[Trial], here: Stage) -> list[tuple[str, str]]:
    platform = here.registry.platform.name
    variable, option = (f"ALLOTMENT_PLATFORM={platform} ", f" --platform {platform}") if here.is_simulated else ("", "")
    name = next((trial.allocator for trial in reversed(trials) if trial.device != "cpu"), None)
    choose = f"ALLOTMENT_ALLOCATOR={name} " if name else ""
    return [
        ("allotment doctor", "is everything here in order, and if not, what to type"),
        (f"allotment allocators --check{option}", "which device can use which allocator, and which one it does"),
        (f"{variable}{choose}python your_program.py", "the same choice for a program of yours"),
    ]
