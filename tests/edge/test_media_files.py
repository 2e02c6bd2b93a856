"""Media files over HTTP: the right of a key, the bodies that the target receives, and AISBench's multimodal prompts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.serving import Gateway, gateway, write_files
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import key_file

PIXELS, SOUND, FRAMES = b"\x89PNG pixels", b"RIFF sound", b"mp4 frames"
CONFIG = """
models:
  inline: {{template: chat, policy: inline, targets: [{{speaks: chat, url: "{ok}"}}]}}
  pass: {{template: chat, policy: pass, targets: [{{speaks: chat, url: "{ok}", engine: vllm}}]}}
  api: {{template: api, policy: pass, targets: [{{speaks: chat, url: "{ok}"}}]}}
  scored: {{template: chat, policy: inline, targets: [{{speaks: chat, url: "{scores}", engine: vllm}}]}}
  escaping: {{template: chat, policy: pass, tokenizer: {tokenizer}, targets: [{{speaks: chat, url: "{ok}"}}]}}
  plain: {{template: chat, targets: [{{speaks: chat, url: "{ok}"}}]}}
  text: {{template: sft-demo, policy: pass, targets: [{{speaks: completions, url: "{ok}"}}]}}
  litellm: {{template: chat, policy: pass, targets: [{{speaks: litellm, model: gemini/any}}]}}
"""
KEYS = key_file({"user": "", "trusted": "allow_media_files: true"})
PARTS = """
input_columns: [anything, question]
output_column: answer
prompt_template:
  template:
    round:
      - role: HUMAN
        prompt_mm:
          text: {{type: text, text: "{{anything}}\\nQuestion: {{question}}"}}
          image: {{type: image_url, image_url: {{url: "{image}{{image}}"}}}}
          video: {{type: video_url, video_url: {{url: "{video}{{video}}"}}}}
          audio: {{type: audio_url, audio_url: {{url: "{audio}{{audio}}"}}}}
"""
PREFIXES = {  # prompt: what its template writes before image, video and audio
    "files": ("file://", "file://", "file://"),
    "base64": ("data:image/jpeg;base64,", "data:video/jpeg;base64,", "data:audio/wav;base64,"),
    "bare": ("", "", ""),
}


@dataclass(frozen=True)
class World:
    """A gateway, its upstream, and the folder that its policies name."""

    served: Gateway
    up: FaultyUpstream
    images: Path

    def post(self, model: str, key: str = "", path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return self.served.http.post(path, json={"model": model, **fields}, headers=headers)

    def chat(self, model: str, url: str, key: str = "", **fields: Any) -> httpx.Response:
        return self.post(model, key, messages=[{"role": "user", "content": [image(url)]}], **fields)

    def sent(self) -> Any:
        """The content of the last message that the upstream received."""
        return self.up.requests[-1].body["messages"][-1]["content"]


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def make_world(folder: Path, up: FaultyUpstream, keys: str = "") -> str:
    """Write the files of a gateway, and return its configuration."""
    for name, content in (
        ("images/deep/a.png", PIXELS),
        ("images/s.wav", SOUND),
        ("images/v.mp4", FRAMES),
        ("images/<eoh>.png", PIXELS),
        ("secret.png", b"secret"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "images" / "link.png").symlink_to(folder / "secret.png")
    files = {f"policies/{mode}.yaml": f"media: {{file: {mode}, folders: [images]}}" for mode in ("pass", "inline")}
    for name, (images, videos, sounds) in PREFIXES.items():
        files[f"prompts/{name}.yaml"] = PARTS.format(image=images, video=videos, audio=sounds)
    shipped = files["prompts/files.yaml"].replace("{anything}\\n", "")
    files["prompts/shipped.yaml"] = shipped.replace("[anything, question]", "[question, image, video, audio]")
    if keys:
        files["keys.yaml"] = keys
        keys = "keys: {file: keys.yaml}\n"
    write_files(folder, files)
    tokenizer = Path(__file__).parents[2] / "demo" / "model"
    return keys + CONFIG.format(ok=up.url("ok"), scores=up.url("scores"), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway on loopback without client keys."""
    folder = tmp_path_factory.mktemp("media").resolve()
    with FaultyUpstream() as up, gateway(folder, make_world(folder, up)) as served:
        yield World(served, up, folder / "images")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway on loopback with client keys."""
    folder = tmp_path_factory.mktemp("media_keys").resolve()
    with FaultyUpstream() as up, gateway(folder, make_world(folder, up, KEYS)) as served:
        yield World(served, up, folder / "images")


# ---------------------------------------------------------------- what is sent


@pytest.mark.parametrize("url", ["file://deep/a.png", "deep/a.png", "file://localhost{images}/x/../deep/a%2Epng"])
def test_a_file_is_sent_as_data_or_as_the_address_of_its_resolved_path(world: World, url: str) -> None:
    url = url.format(images=world.images)
    assert world.chat("inline", url).status_code == 200
    assert world.sent() == [image(data("image/png", PIXELS))]
    for model in ("pass", "api", "escaping"):
        assert world.chat(model, url).status_code == 200
        assert world.sent() == [image(f"file://{world.images}/deep/a.png")]


def test_a_marker_in_the_name_of_a_file_stays_encoded(world: World) -> None:
    assert world.chat("escaping", "file://%3Ceoh%3E.png").status_code == 200
    assert world.sent() == [image(f"file://{world.images}/%3Ceoh%3E.png")]


def test_render_shows_what_is_sent(world: World) -> None:
    for model, url in (("inline", data("image/png", PIXELS)), ("pass", f"file://{world.images}/deep/a.png")):
        body = world.post(
            model, path="/v1/render", messages=[{"role": "user", "content": [image("deep/a.png")]}]
        ).json()
        assert body["messages"] == [{"role": "user", "content": [image(url)]}]


def test_candidates_name_files(world: World) -> None:
    talks = {
        label: [{"role": "user", "content": [image("file://deep/a.png")]}, {"role": "assistant", "content": label}]
        for label in ("yes", "no")
    }
    before = world.up.request_count
    answer = world.post("scored", path="/v1/loglikelihood", candidates=talks)
    assert answer.status_code == 200, answer.text
    bodies = [request.body for request in world.up.requests[before:]]
    assert [body["messages"][0]["content"] for body in bodies] == [[image(data("image/png", PIXELS))]] * 2
    context = [{"role": "user", "content": [image("/etc/x.png")]}]
    refused = world.post("scored", path="/v1/loglikelihood", context=context, candidates={"yes": "a", "no": "b"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "media_not_allowed")


@pytest.mark.parametrize("model", ["inline", "pass"])
@pytest.mark.parametrize(
    "url",
    [
        "file://../secret.png",
        "file://link.png",
        "/etc/passwd",
        "file:///proc/self/environ",
        "file://localhost/etc/%70asswd",
        "http://a.example/a.png",
    ],
)
def test_other_files_never_reach_the_target(world: World, model: str, url: str) -> None:
    before = world.up.request_count
    answer = world.chat(model, url)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_not_allowed")
    assert world.up.request_count == before


@pytest.mark.parametrize("model", ["plain", "litellm"])
def test_other_models_take_no_files(world: World, model: str) -> None:
    """``plain``: the policy has the default. ``litellm``: LiteLLM would fetch media itself."""
    for url in ("file://deep/a.png", "deep/a.png"):
        answer = world.chat(model, url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_not_allowed")


def test_a_text_model_refuses_files_as_other_media(world: World) -> None:
    answer = world.chat("text", "file://deep/a.png")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_not_supported")


# ---------------------------------------------------------------- the right of a key


@pytest.mark.parametrize("model", ["inline", "pass", "api"])
def test_a_key_needs_the_right_even_on_loopback(keyed: World, model: str) -> None:
    before = keyed.up.request_count
    answer = keyed.chat(model, "file://deep/a.png", "user")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "media_not_allowed")
    assert "allow_media_files" in error["message"]
    assert error["param"] == "messages[0].content[0].image_url"
    assert keyed.up.request_count == before
    assert keyed.chat(model, "data:image/png;base64,AAAA", "user").status_code == 200
    assert keyed.chat(model, "file://deep/a.png", "trusted").status_code == 200
    assert keyed.chat(model, "file://deep/a.png").status_code == 401


def test_the_right_is_needed_for_files_in_variables_and_candidates(keyed: World) -> None:
    reference = {"id": "files", "variables": ROW}
    talk = [{"role": "user", "content": [image("deep/a.png")]}, {"role": "assistant", "content": "a"}]
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"model": "pass", "gateway": {"prompt": reference}}),
        ("/v1/render", {"model": "pass", "gateway": {"prompt": reference}}),
        (
            "/v1/responses",
            {
                "model": "pass",
                "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "file://deep/a.png"}]}],
            },
        ),
        ("/v1/loglikelihood", {"model": "scored", "candidates": {"a": talk, "b": talk}}),
    ]
    for path, body in requests:
        assert keyed.post(key="trusted", path=path, **body).status_code == 200, path
        answer = keyed.post(key="user", path=path, **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_not_allowed"), path
        assert "allow_media_files" in answer.json()["error"]["message"]


# ---------------------------------------------------------------- AISBench's multimodal prompts


def tagged(image: str, audio: str, video: str) -> str:
    pieces = (("TEXT", "What is this?"), ("IMAGE", image), ("AUDIO", audio), ("VIDEO", video))
    return "".join([f"<AIS_{kind}_START>{piece}<AIS_CONTENT_TAG>" for kind, piece in pieces])


ROW = {"anything": "blabla", "question": tagged("deep/a.png", "s.wav", "v.mp4"), "answer": "a cat"}
TEXT = {"type": "text", "text": "blabla\nQuestion: What is this?"}


def media(image: str, audio: str, video: str) -> list[dict[str, Any]]:
    urls = {"image_url": image, "audio_url": audio, "video_url": video}
    return [TEXT, *[{"type": kind, kind: {"url": url}} for kind, url in urls.items()]]


def ask(world: World, model: str, prompt: str, question: str) -> Any:
    variables = {**ROW, "question": question}
    answer = world.post(model, gateway={"prompt": {"id": prompt, "variables": variables}})
    assert answer.status_code == 200, answer.text
    return world.sent()


@pytest.mark.parametrize("model", ["pass", "api"])
def test_the_example_with_files_gives_the_parts_that_are_shown(world: World, model: str) -> None:
    """AISBench's documentation, multimodal prompts: addresses. Its paths may be relative or absolute."""
    expected = media(*[f"file://{world.images}/{name}" for name in ("deep/a.png", "s.wav", "v.mp4")])
    assert ask(world, model, "files", ROW["question"]) == expected
    absolute = tagged(*[f"{world.images}/{name}" for name in ("deep/a.png", "s.wav", "v.mp4")])
    assert ask(world, model, "files", absolute) == expected


def test_the_example_with_files_is_sent_as_data(world: World) -> None:
    expected = media(data("image/png", PIXELS), data("audio/wav", SOUND), data("video/mp4", FRAMES))
    assert ask(world, "inline", "files", ROW["question"]) == expected


@pytest.mark.parametrize("model", ["plain", "pass", "inline", "api"])
def test_the_example_with_base64_gives_the_parts_that_are_shown(world: World, model: str) -> None:
    """AISBench's documentation, multimodal prompts: base64. A video is a list of JPEG frames."""
    expected = media("data:image/jpeg;base64,QUJD", "data:audio/wav;base64,REVG", "data:video/jpeg;base64,R0hJ,SktM")
    assert ask(world, model, "base64", tagged("QUJD", "REVG", "R0hJ,SktM")) == expected


@pytest.mark.parametrize("prompt", ["files", "shipped"])
def test_a_row_as_aisbench_loads_it_has_only_tagged_text(world: World, prompt: str) -> None:
    """AISBench's loaders write rows of ``content`` and ``answer``, and its configs list the columns of the pieces."""
    content = tagged("deep/a.png", "s.wav", "v.mp4")
    variables = {"content": content, "answer": "a cat", **({"anything": "blabla"} if prompt == "files" else {})}
    answer = world.post("pass", gateway={"prompt": {"id": prompt, "variables": variables}})
    assert answer.status_code == 200, answer.text
    assert [part["type"] for part in world.sent()] == ["text", "image_url", "audio_url", "video_url"]
    assert "unfilled_column" not in answer.headers.get("x-gateway-notice", "")


@pytest.mark.parametrize(
    "piece", ["deep/a.png", "file://deep/a.png", "https://example.com/a.png", "data:image/png;base64,AAAA"]
)
def test_a_piece_is_a_path_a_file_an_address_or_data(world: World, piece: str) -> None:
    sent = f"file://{world.images}/deep/a.png" if "deep" in piece else piece
    question = tagged(piece, "https://example.com/s.wav", "https://example.com/v.mp4")
    assert ask(world, "pass", "bare", question)[1] == image(sent)
