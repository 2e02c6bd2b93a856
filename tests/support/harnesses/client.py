"""A client of the table: its packages, its command and the reader of its score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.engines.environment import Packages

CONFIGS = Path(__file__).resolve().parent / "configs"
"""The clients' own files: tasks, configurations and scripts. They are copied into a job's folder."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one client against one address."""

    base_url: str
    """The address, ``…/v1``."""
    model: str
    tokenizer: str
    """The folder with the demo model's tokenizer and a chat template."""
    bin: str
    """The folder with the programs of the client's environment."""

    def variables(self) -> dict[str, str]:
        """Environment variables for configurations and scripts, with the key that SDKs require."""
        return {
            "BASE_URL": self.base_url,
            "OPENAI_BASE_URL": self.base_url,
            "MODEL": self.model,
            "TOKENIZER": self.tokenizer,
            "OPENAI_API_KEY": "none",
        }


@dataclass(frozen=True, slots=True)
class Client:
    """One client of the table."""

    name: str
    title: str
    guide: str
    """The page in docs/harnesses that shows the command and the files."""
    packages: Packages
    command: Callable[[Job], list[str]]
    """The command line, run in a folder that holds ``sums.jsonl`` and ``files``."""
    score: Callable[[Path, str], float]
    """The share of right answers, from that folder and the standard output; may raise if there is none."""
    scores: str = ""
    """The file or folder in which the command writes the score of each row, for ``--scores``."""
    files: tuple[str, ...] = ()
    """Files of ``CONFIGS`` that the command reads, copied to the same path."""
    environment: str = ""
    """The folder of the environment, if clients share one; without it the name."""
    sums: int = 100
    """Number of sums."""
    seconds: float = 300.0
    """Time limit of a run in seconds."""
    needs: frozenset[str] = frozenset()
    """Engine features that the client needs; without one the gateway must refuse it by name (``Engine.refusals``)."""
    own_format: bool = False
    """The client writes the model's format into its prompts itself, so the gateway's template does not change them."""
    reads: tuple[str, ...] = ()
    """Names of the job's variables that the command or its files read."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its own."""

    @property
    def folder(self) -> str:
        return self.environment or self.name

    def environment_of(self, job: Job) -> dict[str, str]:
        """The environment variables for a job."""
        given = job.variables()
        return {name: given[name] for name in self.reads} | dict(self.variables)
